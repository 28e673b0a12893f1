"""What a bench launches besides the target alone, and the speed of each at every load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eagle3_backend.engines.answers import Prompt
from eagle3_backend.engines.cells import MINE, NGRAM, OWN_HEAD, Cell, Timed, Way
from eagle3_backend.engines.launch import with_ngram, with_own_head
from eagle3_backend.engines.plan import Plan
from eagle3_backend.engines.targets import has_own_head
from eagle3_backend.findings import FindingError, info, warning
from eagle3_backend.stages.bench_client import Client
from eagle3_backend.stages.bench_engines import BenchEngines
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafted_engine import drafted_engine, engine_with


@dataclass(frozen=True)
class Launch:
    """A way to draft and the server that does."""

    way: Way
    plan: Plan


def launches(context: StageContext) -> list[Launch]:
    """The campaign's drafter at its depth, then at the others, then what it has to beat. All of them are checked before
    any engine starts. Raises FindingError."""
    parameters = context.parameters
    depths = dict.fromkeys((parameters.depth, *sorted(parameters.depths)))
    found = [Launch(Way(MINE, depth), drafted_engine(context, depth)) for depth in depths]
    for name in dict.fromkeys(parameters.against):
        if plan := _against(context, name):
            directory = "" if name in (NGRAM, OWN_HEAD) else name
            found.append(Launch(Way(Path(name).name if directory else name, parameters.depth, directory), plan))
    return found


def _against(context: StageContext, name: str) -> Plan | None:
    """The launch of another way at the bench's depth; None, and said, where the target has no such head."""
    engine, depth = context.spec["engine"], context.parameters.depth
    if name == NGRAM:
        return with_ngram(engine, depth)
    if name != OWN_HEAD:
        return engine_with(context, Path(name), depth)
    if has_own_head(json.loads((context.inputs["target"] / "config.json").read_text(encoding="utf-8"))):
        return with_own_head(engine, depth)
    context.report(
        info(
            "own_head_missing",
            "The target brings no head of its own that could draft for it: there is nothing to measure.",
            path="bench.against",
            expected="a target with multi-token prediction",
            actual=OWN_HEAD,
        )
    )
    return None


class Sweep:
    """The cells of a bench: ``loads`` are the prompts to ask at each number of requests in flight."""

    def __init__(self, engines: BenchEngines, loads: Mapping[int, Sequence[Prompt]]) -> None:
        self._engines = engines
        self._loads = loads
        self._plain: dict[int, tuple[Timed, ...]] = {}
        self.cells: list[Cell] = []
        self.lost: list[dict[str, str | int]] = []

    def alone(self, plain: Client) -> None:
        """Ask the target alone, for hosts without room for two servers."""
        for concurrency in self._loads:
            rounds = self._rounds(concurrency)
            self._plain[concurrency] = tuple(self._engines.round(plain, prompts) for prompts in rounds)

    def beside(self, way: Way, plain: Client | None, drafted: Client) -> None:
        """One way at every load; with ``plain`` both servers in turn, so that drift of the machine meets both alike."""
        for concurrency in self._loads:
            found: tuple[list[Timed], list[Timed]] = ([], [])
            for number, prompts in enumerate(self._rounds(concurrency)):
                if plain is None:
                    found[1].append(self._engines.round(drafted, prompts))
                    continue
                for which in (0, 1) if number % 2 == 0 else (1, 0):
                    found[which].append(self._engines.round((plain, drafted)[which], prompts))
            without = tuple(found[0]) if plain else self._plain[concurrency]
            self.cells.append(Cell(way, concurrency, tuple(found[1]), without))

    def others(self, launches: Sequence[Launch], plain: Client | None) -> None:
        """The other ways, one server after the other. One that fails is told; what was measured stays."""
        for launch in launches:
            try:
                with self._engines.engine(launch) as drafted:
                    self.beside(launch.way, plain, drafted)
            except FindingError as problem:
                self._lose(launch.way, problem)

    def _rounds(self, concurrency: int) -> Iterator[Sequence[Prompt]]:
        prompts = self._loads[concurrency]
        for start in range(0, len(prompts), concurrency):
            yield prompts[start : start + concurrency]

    def _lose(self, way: Way, problem: FindingError) -> None:
        cause = problem.findings[0]
        kept = sum(cell.way == way for cell in self.cells)
        self.lost.append({"way": way.name, "depth": way.depth, "loads_kept": kept, "why": cause.message})
        self._engines.context.report(
            warning(
                "bench_way_lost",
                f"{way.words} was measured at {kept} of {len(self._loads)} loads: {cause.message}",
                path=f"bench.{cause.code}",
                expected=len(self._loads),
                actual=kept,
                fix=cause.fix or "Read the engine's lines in this run's log.",
            )
        )
