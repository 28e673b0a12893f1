"""The engines of a bench attempt, and asking them: progress, running acceptance, and the watch over both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, ask_all, counted_of, refused
from eagle3_backend.engines.cells import Way
from eagle3_backend.engines.launch import with_measurement
from eagle3_backend.engines.measured import Measured
from eagle3_backend.engines.metrics import added, window
from eagle3_backend.engines.plan import Plan
from eagle3_backend.engines.streams import tells_enough
from eagle3_backend.engines.timing import Timed, timed_round
from eagle3_backend.findings import Finding, warning
from eagle3_backend.stages.bench_client import Client, or_refusal
from eagle3_backend.stages.bench_kept import Kept
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.engine_http import RequestRefused
from eagle3_backend.stages.engine_process import EngineProcess, unanswered


class Drafted(Protocol):
    """A server with a way to draft (`bench_sweep.Launch`)."""

    @property
    def way(self) -> Way: ...

    @property
    def plan(self) -> Plan: ...


Asking = Callable[[Client, Prompt, int], Answer]
"""A method of a client that asks."""


class Server:
    """An engine that is started when it is first asked, and ends with ``life``: what is kept from an earlier attempt
    needs none."""

    def __init__(self, engines: BenchEngines, launch: Drafted | None, life: ExitStack) -> None:
        self._engines, self._launch, self._life = engines, launch, life
        self._client: Client | None = None

    def up(self) -> Client:
        """Its client, once it is ready. Raises FindingError, Stopped, AnotherBuild."""
        if self._client is None:
            self._client = self._life.enter_context(self._engines.engine(self._launch))
        return self._client


class BenchEngines:
    """Starts and asks the engines of one attempt: ``total`` is the number of answers that progress counts up to, and
    ``kept`` holds what needs no asking."""

    def __init__(self, context: StageContext, model: Path, total: int, kept: Kept) -> None:
        self.context = context
        self.parameters = context.parameters
        self.model = model
        self.kept = kept
        self.version = kept.build
        self.timings: dict[str, float] = {}
        self.total = total
        self.asked = 0
        """Answers that came in this attempt."""
        self._done = 0
        self._begin = 0.0
        self._running: list[EngineProcess] = []

    @contextmanager
    def engine(self, launch: Drafted | None) -> Iterator[Client]:
        """A started server: the one of ``launch``, or the target alone. Raises FindingError, Stopped."""
        plan = with_measurement(launch.plan if launch else self.context.spec["engine"], drafting=launch is not None)
        name = f"start_{launch.way.name}_{launch.way.depth}" if launch else "start_plain"
        with EngineProcess(plan, model=str(self.model), context=self.context) as process:
            self._running.append(process)
            self.timings[name] = round(process.start_seconds, 1)
            client = Client(process.port, process.api_key, plan["engine"])
            try:
                self.version = client.version()
                self.kept.take_build(self.version)
                yield client
            finally:
                self._running.remove(process)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.timings[name] = round(time.monotonic() - begin, 1)

    def watch(self) -> None:
        """Raise Stopped or an engine's finding, when there is reason to leave."""
        self.context.leave_if_asked()
        for process in self._running:
            process.check()

    def ask(
        self,
        server: Server,
        how: Asking,
        prompts: Sequence[Prompt],
        concurrency: int,
        *,
        part: str = "",
        tokens: int = 0,
        tell: bool = False,
    ) -> list[Answer]:
        """Answers in the order of the prompts; refused prompts are left out, and reported once all are asked.

        ``part`` names what these answers belong to: those kept in it are not asked for again. Empty: they are kept by
        the caller, or not at all. ``tokens`` are those of an answer at most, 0: as many as the parameters say; ``tell``
        adds the running acceptance length to the part's series.
        """
        answers: dict[Prompt, Answer] = {}
        refusals: list[Refusal] = []
        open_prompts = []
        for prompt in prompts:
            found = self.kept.answer(part, prompt) if part else None
            if found is None:
                open_prompts.append(prompt)
            else:
                _take(found, answers, refusals)
        self.count(len(prompts) - len(open_prompts))
        if not open_prompts:
            self._tell_refused(refusals, prompts)
            return list(answers.values())
        ask = partial(or_refusal, partial(how, server.up()), max_new_tokens=tokens or self.parameters.max_new_tokens)
        self._begin = self._begin or time.monotonic()
        try:
            for answer in ask_all(ask, open_prompts, concurrency, self.watch):
                self.asked += isinstance(answer, Answer)
                if part:
                    self.kept.keep_answer(part, answer)
                _take(answer, answers, refusals)
                self.count(1)
                if tell:
                    self._tell_acceptance(part, answers)
        except (OSError, RequestRefused) as problem:
            raise unanswered(problem, self.watch) from problem
        self._tell_refused(refusals, prompts)
        return [answers[prompt] for prompt in prompts if prompt in answers]

    def count(self, answers: int) -> None:
        """So many more answers are there, asked for or kept."""
        self._done += answers
        rate = self.asked / (time.monotonic() - self._begin) if self._begin else 0.0
        self.context.journal.progress(self._done, self.total, "answers", rate)

    def _tell_refused(self, refusals: Sequence[Refusal], prompts: Sequence[Prompt]) -> None:
        if refusals:
            fix = (
                f"Give it more context, where the target has more (bench.context, now {self.parameters.context}); or "
                "let the prompts stage drop what is longer (prompts.max_characters)."
            )
            self.context.report(refused(refusals, len(prompts), fix))

    def _tell_acceptance(self, name: str, answers: dict[Prompt, Answer]) -> None:
        steps = sum(answer.steps.count for answer in answers.values())
        if steps:
            length = 1.0 + sum(answer.steps.accepted for answer in answers.values()) / steps
            values = {"acceptance_length": length, f"acceptance_length/{name}": length}
            self.context.journal.metric(self._done, **values)

    def measure(self, server: Server, name: str, prompts: Sequence[Prompt]) -> Measured:
        """Acceptance on one prompt set, from the counters before and after it. For answers that an earlier attempt kept
        of an unfinished set stands what they tell, as its counters went with it."""
        with self.timed(name):
            kept = [self.kept.answer(name, prompt) for prompt in prompts]
            ask = partial(self.ask, server, Client.chat, prompts, self.parameters.concurrency, part=name, tell=True)
            counters = self.kept.counters(name)
            if counters is None:
                counters = counted_of([one for one in kept if isinstance(one, Answer)], self.parameters.depth)
            if None not in kept:
                return self._whole(Measured(name, ask(), counters, {}, self.parameters.depth))
            client = server.up()
            begin, before = time.monotonic(), client.scrape()
            answers = ask()
            counters = added([counters, window(before, client.scrape(), time.monotonic() - begin).drafting])
            self.kept.keep_counters(name, counters)
        return self._whole(Measured(name, answers, counters, {}, self.parameters.depth))

    def _whole(self, measured: Measured) -> Measured:
        """Without answers that the end of the context cut short, which is told: the engine says nothing of it. The
        counters have them; what the others tell stands for those then."""
        cut = [one for one in measured.answers if one.is_cut(self.parameters.max_new_tokens)]
        if not cut:
            return measured
        self.context.report(_beyond_context(measured.name, len(cut), len(measured.answers), self.parameters))
        kept = [one for one in measured.answers if one not in cut]
        return replace(measured, answers=kept, counters=counted_of(kept, measured.depth))

    def round(self, server: Server, prompts: Sequence[Prompt]) -> Timed:
        """All these prompts at once, streamed where the stream tells enough, between two looks at the counters."""
        try:
            client = server.up()
            streamed = tells_enough(self.context.spec["engine"]["engine"], self.version)
            how = Client.streamed if streamed else Client.chat
            return timed_round(client.scrape, lambda: self.ask(server, how, prompts, len(prompts)))
        except OSError as problem:
            raise unanswered(problem, self.watch) from problem


def _take(answer: Answer | Refusal, answers: dict[Prompt, Answer], refusals: list[Refusal]) -> None:
    if isinstance(answer, Refusal):
        refusals.append(answer)
    else:
        answers[answer.prompt] = answer


def _beyond_context(name: str, cut: int, asked: int, parameters: Any) -> Finding:
    return warning(
        "prompt_beyond_context",
        f"{cut} of {asked} prompts leave less than {parameters.max_new_tokens} tokens of the context for their answer: "
        "they are left out.",
        path=f"bench.{name}",
        expected=f"prompt and answer within {parameters.context} tokens",
        actual=cut,
        fix="Give the engine more context, where the target has more (bench.context), or ask for shorter answers.",
    )
