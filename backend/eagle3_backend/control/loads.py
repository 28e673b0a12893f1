"""A running server at several numbers of requests in flight, one after the other, through a way that may be cut.

Prompts are asked in rounds, as a campaign's bench asks them. A round in which the way was cut, or the server failed, is
asked again as a whole: the counters are then those of the new try. What was measured before a server is lost stays.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, ask_all, refused
from eagle3_backend.engines.cells import SERVED, Way, row_of_way
from eagle3_backend.engines.metrics import Scrape, increase
from eagle3_backend.engines.timing import Timed, timed_round
from eagle3_backend.findings import Finding, FindingError, error, info, warning
from eagle3_backend.serving.running_server import RunningServer

PATIENCE, RETRY = 90.0, 1.0
"""How long a bench waits for a server that is away, and between two looks, seconds."""
LOOK, LOOKS, BETWEEN = 60.0, 3, 15.0
"""A round that takes longer than so many seconds is looked after: when so many looks, that far apart, find nobody, the
server is away. One that ends while requests are under way may leave their streams open."""
TRIES = 5
"""How often a round is asked at most, before a server that keeps failing in the middle of it is given up."""

REFUSED = "Leave out prompts that are longer than its context."

Progress = Callable[[int, int, int], None]
"""Is told the requests in flight, and how many of how many prompts were asked with so many."""


def in_silence(concurrency: int, done: int, total: int) -> None:
    """The progress that nobody is told."""


@dataclass(frozen=True)
class Wanted:
    """How a server is to be measured: prompts at most, tokens of an answer, each number of requests in flight (of one
    round), and the data sets of a hub that the prompts are from, each with its commit."""

    prompts: int = 40
    max_new_tokens: int = 64
    concurrencies: tuple[int, ...] = (8,)
    data_sets: tuple[str, ...] = ()


@dataclass
class Load:
    """The rounds that were measured with so many requests in flight."""

    concurrency: int
    prompts: int
    rounds: list[Timed] = field(default_factory=list)
    asked: int = 0

    def row(self, depth: int, drafter: str, resamples: int, seed: int) -> dict[str, Any]:
        """As a row of a bench's cells. Speeds and waiting times are those of rounds in which the server worked for us
        alone; where it never did, of all of them, which is told by ``shared``."""
        alone = [timed for timed in self.rounds if timed.round.ours]
        row = row_of_way(
            Way(SERVED, depth, drafter), self.concurrency, self.rounds, alone or self.rounds, None, resamples, seed
        )
        return {**row, "shared": not alone}


class Sweep:
    """Measures ``server`` at each load; ``loads`` holds what was measured, ``lost`` what was not."""

    def __init__(self, server: RunningServer, prompts: Sequence[Prompt], wanted: Wanted, progress: Progress) -> None:
        self._server = server
        self._prompts = list(prompts)
        self._known = len(prompts)
        self._wanted = wanted
        self._progress = progress
        self._last: Scrape | None = None
        self._depth = 0
        self._cuts = self._resets = 0
        self._next_look, self._away = 0.0, 0
        self._refusals: list[Refusal] = []
        self.streamed = True
        self.loads: list[Load] = []
        self.findings: list[Finding] = []
        self.lost: list[dict[str, Any]] = []

    def run(self) -> None:
        """Raises FindingError for a server that cannot be measured at all, KeyboardInterrupt with nothing measured."""
        self._expect()
        try:
            for concurrency in self._wanted.concurrencies:
                self._measure(Load(concurrency, len(self._prompts)))
        except FindingError as problem:
            if not self.loads and not self._cuts:
                raise
            self._lose(problem.findings[0])
        except KeyboardInterrupt:
            self._server.hang_up()
            if not self.loads:
                raise
            self.findings.append(self._left_out("bench_interrupted", "The bench was interrupted.", "Measure again."))
        if self._refusals:
            self.findings.append(refused(self._refusals, self._known, REFUSED))
        if self._cuts:
            self.findings.append(self._cut())
        if self._resets:
            self.findings.append(_restarted(self._resets))

    def _expect(self) -> None:
        """What can be said before anything is measured."""
        most, limit = len(self._prompts), self._server.identity.max_running
        for concurrency in self._wanted.concurrencies:
            if concurrency > most:
                self.findings.append(_too_few_prompts(concurrency, most))
            if limit and concurrency > limit:
                self.findings.append(_queued(concurrency, limit))
        if why := self._server.why_whole():
            self.streamed = False
            self.findings.append(_not_streamed(self._server.url, why))

    def _measure(self, load: Load) -> None:
        for start in range(0, len(self._prompts), load.concurrency):
            some = self._prompts[start : start + load.concurrency]
            timed, refusals = self._round(some)
            if timed.round.depth and self._depth not in (0, timed.round.depth):
                raise FindingError(self._changed(self._depth, timed.round.depth))
            self._depth = timed.round.depth or self._depth
            if not load.rounds:
                self.loads.append(load)
            load.rounds.append(timed)
            load.asked += len(some)
            self._refusals += refusals
            self._progress(load.concurrency, load.asked, load.prompts)
        # What is refused once is refused at every load.
        answered = {answer.prompt for timed in load.rounds for answer in timed.round.answers}
        self._prompts = [prompt for prompt in self._prompts if prompt in answered]

    def _round(self, prompts: Sequence[Prompt]) -> tuple[Timed, list[Refusal]]:
        """These prompts at once. Raises FindingError where the server does not come back, or as another one."""
        for tries in range(TRIES):
            refusals: list[Refusal] = []
            try:
                return timed_round(self._scrape, partial(self._ask, prompts, refusals)), refusals
            except FindingError as problem:
                self._server.hang_up()
                if not _may_pass(problem.findings[0]) or tries == TRIES - 1:
                    raise
                self._cuts += not tries
                self._await(problem)
        raise AssertionError("the last try returns or raises")

    def _ask(self, prompts: Sequence[Prompt], refusals: list[Refusal]) -> list[Answer]:
        """In the order of the prompts, whoever came first: the interval is then the same each time."""
        tokens = self._wanted.max_new_tokens
        how = self._server.streamed if self.streamed else self._server.chat
        self._next_look, self._away = time.monotonic() + LOOK, 0
        # No load finds in the prefix cache what another one has left there: each request has a salt of its own.
        found = {
            answer.prompt: answer
            for answer in ask_all(
                lambda prompt: how(prompt, tokens, uuid.uuid4().hex), prompts, len(prompts), self._watch
            )
        }
        refusals += [answer for answer in found.values() if isinstance(answer, Refusal)]
        return [answer for answer in map(found.get, prompts) if isinstance(answer, Answer)]

    def _watch(self) -> None:
        """Called while answers are waited for. Raises FindingError when the server is away."""
        if time.monotonic() < self._next_look:
            return
        try:
            self._server.look()
            self._away = 0
        except FindingError:
            self._away += 1
            if self._away >= LOOKS:
                raise
        self._next_look = time.monotonic() + BETWEEN

    def _scrape(self) -> Scrape:
        """The counters, which begin anew where a process of the server was restarted since the last look."""
        found = self._server.scrape()
        if self._last is not None and increase(self._last, found).reset:
            self._resets += 1
        self._last = found
        return found

    def _await(self, problem: FindingError) -> None:
        """Wait until it answers again. Raises FindingError: ``problem`` when it does not, or that it is another one."""
        end = time.monotonic() + PATIENCE
        while True:
            time.sleep(RETRY)
            try:
                now = self._server.identify()
                break
            except FindingError as still:
                if not _may_pass(still.findings[0]):
                    raise
                if time.monotonic() > end:
                    raise problem from still
        before = self._server.identity
        if replace(now, mean_length=None) != replace(before, mean_length=None):
            raise FindingError(self._changed(_words(before), _words(now)))

    def _lose(self, cause: Finding) -> None:
        """Tell of a server that was lost, and what was measured of what was wanted."""
        self.findings += [] if _may_pass(cause) else [cause]
        fix = "Look whether the server is still there, and measure again."
        self.findings.append(self._left_out("endpoint_lost", f"The server was lost: {cause.message}", fix))

    def _left_out(self, code: str, why: str, fix: str) -> Finding:
        """What was not measured, for this reason."""
        asked = {load.concurrency: (load.asked, load.prompts) for load in self.loads}
        loads = {each: asked.get(each, (0, len(self._prompts))) for each in self._wanted.concurrencies}
        parts = [f"{done} of {total} at {each} in flight" for each, (done, total) in loads.items()]
        whole = sum(done == total for done, total in loads.values())
        self.lost.append({"way": SERVED, "depth": self._depth, "loads_kept": whole, "why": why})
        return error(
            code,
            f"{why} The figures are those of the prompts asked before: {', '.join(parts)}.",
            path="endpoint",
            expected=sum(total for _, total in loads.values()),
            actual=sum(done for done, _ in loads.values()),
            fix=fix,
        )

    def _changed(self, before: Any, now: Any) -> Finding:
        return error(
            "endpoint_changed",
            f"{self._server.url} is another server than before: nothing more was measured.",
            path="endpoint",
            expected=before,
            actual=now,
            fix="Measure again while nobody restarts it with something else.",
        )

    def _cut(self) -> Finding:
        return warning(
            "endpoint_link_cut",
            f"The way to the server was cut, or it failed, in {self._cuts} rounds. Each was asked again as a whole, "
            "if the server came back.",
            path="endpoint",
            expected=0,
            actual=self._cuts,
        )


def _may_pass(finding: Finding) -> bool:
    """Whether it is worth a wait: nobody answers, or a server that fails, as one does while it ends or starts."""
    failing = isinstance(finding.actual, int) and finding.actual >= 500
    return finding.code == "endpoint_unreachable" or (finding.code == "endpoint_refused" and failing)


def _words(identity: Any) -> str:
    return f"{identity.engine} {identity.version}, {identity.model}, method {identity.method}, depth {identity.depth}"


def _restarted(times: int) -> Finding:
    return warning(
        "counters_reset",
        f"A counter of the server fell {times} times during the bench: one of its processes was restarted. What was "
        "counted across that is left out.",
        path="endpoint",
        expected=0,
        actual=times,
        fix="Look in its log for what ended it, and measure again.",
    )


def _too_few_prompts(concurrency: int, prompts: int) -> Finding:
    return warning(
        "concurrency_not_reached",
        f"There are too few prompts to keep {concurrency} requests in flight.",
        path="endpoint",
        expected=concurrency,
        actual=prompts,
        fix="Name more prompts (--prompts, --count), or fewer requests in flight.",
    )


def _queued(concurrency: int, limit: int) -> Finding:
    return warning(
        "concurrency_not_reached",
        f"The server works on {limit} requests at once: with {concurrency} in flight the others wait, and the time to "
        "the first token counts that.",
        path="endpoint",
        expected=concurrency,
        actual=limit,
        fix="Start it with room for more (SGLang: --max-running-requests, vLLM: --max-num-seqs), or ask for fewer.",
    )


def _not_streamed(url: str, why: str) -> Finding:
    return info(
        "endpoint_not_streamed",
        f"Answers of {url} were asked for as a whole, as {why[:400]}: it is not told how long one waits for the first "
        "token and for the next ones.",
        path="endpoint",
        fix="Measure a release whose stream tells it (vLLM 0.32, SGLang 0.5.23 do), without a proxy before it.",
    )
