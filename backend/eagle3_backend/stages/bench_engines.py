"""The engines of a bench attempt, and asking them: progress, running acceptance, and the watch over both."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from eagle3_backend.engines.answers import POLL, Answer, Prompt, Refusal, ask_all
from eagle3_backend.engines.cells import Timed, Way
from eagle3_backend.engines.launch import with_measurement
from eagle3_backend.engines.measured import Measured
from eagle3_backend.engines.metrics import window
from eagle3_backend.engines.plan import Plan
from eagle3_backend.engines.rounds import read_round
from eagle3_backend.findings import Finding, warning
from eagle3_backend.stages.bench_client import Asking, Client, or_refusal
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.engine_http import RequestRefused
from eagle3_backend.stages.engine_process import EngineProcess, unanswered


class Drafted(Protocol):
    """A server with a way to draft (`bench_sweep.Launch`)."""

    @property
    def way(self) -> Way: ...

    @property
    def plan(self) -> Plan: ...


class BenchEngines:
    """Starts and asks the engines of one attempt: ``total`` is the number of answers that progress counts up to."""

    def __init__(self, context: StageContext, model: Path, total: int) -> None:
        self.context = context
        self.parameters = context.parameters
        self.model = model
        self.version = ""
        self.timings: dict[str, float] = {}
        self._total = total
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
        self, how: Asking, prompts: Sequence[Prompt], concurrency: int, name: str = "", tokens: int = 0
    ) -> list[Answer]:
        """Answers in the order of the prompts, asked for by a method of a client; refused prompts are reported and left
        out.

        ``name`` names the series of the running acceptance length, empty: none; ``tokens`` are those of an answer at
        most, 0: as many as the parameters say.
        """
        answers: dict[Prompt, Answer] = {}
        accepted = steps = 0
        self._begin = self._begin or time.monotonic()
        try:
            ask = partial(or_refusal, how, max_new_tokens=tokens or self.parameters.max_new_tokens)
            for answer in ask_all(ask, prompts, concurrency, self.watch):
                self._done += 1
                rate = self._done / (time.monotonic() - self._begin)
                self.context.journal.progress(self._done, self._total, "answers", rate)
                if isinstance(answer, Refusal):
                    self.context.report(_refused(answer))
                    continue
                answers[answer.prompt] = answer
                accepted += answer.steps.accepted
                steps += answer.steps.count
                if name and steps:
                    length = 1.0 + accepted / steps
                    values = {"acceptance_length": length, f"acceptance_length/{name}": length}
                    self.context.journal.metric(self._done, **values)
        except (OSError, RequestRefused) as problem:
            raise unanswered(problem, self.watch) from problem
        return [answers[prompt] for prompt in prompts if prompt in answers]

    def measure(self, client: Client, name: str, prompts: Sequence[Prompt]) -> Measured:
        """Acceptance on one prompt set, from the counters before and after it."""
        with self.timed(name):
            begin, before = time.monotonic(), client.scrape()
            answers = self.ask(client.chat, prompts, self.parameters.concurrency, name)
            counters = window(before, client.scrape(), time.monotonic() - begin).drafting
        return Measured(name, answers, counters, {}, self.parameters.depth)

    def round(self, client: Client, prompts: Sequence[Prompt]) -> Timed:
        """All these prompts at once, streamed, between two looks at the counters."""
        try:
            before, begin = client.scrape(), time.monotonic()
            answers = self.ask(client.streamed, prompts, len(prompts))
            seconds = time.monotonic() - begin
            found = read_round(before, client.scrape(), answers)
            if not found.ours:
                # The engine counts a token after it was sent: what looks like others' may be our own last ones.
                time.sleep(POLL)
                found = read_round(before, client.scrape(), answers)
        except OSError as problem:
            raise unanswered(problem, self.watch) from problem
        return Timed(found, seconds)


def _refused(refusal: Refusal) -> Finding:
    return warning(
        "prompt_refused",
        f"The engine refused a prompt, which is left out: {refusal.reason[:400]}",
        path=f"{refusal.prompt.source}:{refusal.prompt.id}",
        fix="The prompts stage can drop prompts that are longer than the context (prompts.max_characters).",
    )
