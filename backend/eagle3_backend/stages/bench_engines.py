"""The engines of a bench attempt, and asking them: progress, running acceptance, and the watch over both."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, ask_all
from eagle3_backend.engines.launch import with_measurement
from eagle3_backend.engines.measured import Measured
from eagle3_backend.engines.metrics import window
from eagle3_backend.engines.plan import Plan
from eagle3_backend.findings import Finding, warning
from eagle3_backend.stages.bench_client import Client
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.engine_http import RequestRefused
from eagle3_backend.stages.engine_process import EngineProcess, unanswered


class BenchEngines:
    """Starts and asks the engines of one attempt: ``drafted`` is the launch with the drafter, ``total`` the number of
    answers that progress counts up to."""

    def __init__(self, context: StageContext, model: Path, drafted: Plan, total: int) -> None:
        self.context = context
        self._drafted = drafted
        self.parameters = context.parameters
        self.model = model
        self.version = ""
        self.timings: dict[str, float] = {}
        self._total = total
        self._done = 0
        self._begin = 0.0
        self._running: list[EngineProcess] = []

    @contextmanager
    def engine(self, *, drafting: bool) -> Iterator[Client]:
        """A started server, with the drafter or without. Raises FindingError, Stopped."""
        plan = with_measurement(self._drafted if drafting else self.context.spec["engine"], drafting=drafting)
        with EngineProcess(plan, model=str(self.model), context=self.context) as process:
            self._running.append(process)
            self.timings["start_drafted" if drafting else "start_plain"] = round(process.start_seconds, 1)
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

    def ask(self, client: Client, prompts: Sequence[Prompt], concurrency: int, name: str = "") -> list[Answer]:
        """Answers in the order of the prompts; refused prompts are reported and left out.

        ``name`` names the series of the running acceptance length; empty: none.
        """
        answers: dict[Prompt, Answer] = {}
        accepted = steps = 0
        self._begin = self._begin or time.monotonic()
        try:
            chat = partial(client.chat_or_refusal, max_new_tokens=self.parameters.max_new_tokens)
            for answer in ask_all(chat, prompts, concurrency, self.watch):
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
            answers = self.ask(client, prompts, self.parameters.concurrency, name)
            counters = window(before, client.scrape(), time.monotonic() - begin).drafting
        return Measured(name, answers, counters, {}, self.parameters.depth)


def _refused(refusal: Refusal) -> Finding:
    return warning(
        "prompt_refused",
        f"The engine refused a prompt, which is left out: {refusal.reason[:400]}",
        path=f"{refusal.prompt.source}:{refusal.prompt.id}",
        fix="The prompts stage can drop prompts that are longer than the context (prompts.max_characters).",
    )
