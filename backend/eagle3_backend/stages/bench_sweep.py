"""What a bench launches besides the target alone, and the speed of each at every load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from eagle3_backend.engines.answers import Prompt
from eagle3_backend.engines.cells import MINE, NGRAM, OWN_HEAD, Cell, Way
from eagle3_backend.engines.launch import with_ngram, with_own_head
from eagle3_backend.engines.plan import Plan
from eagle3_backend.engines.targets import has_own_head
from eagle3_backend.engines.timing import Timed
from eagle3_backend.findings import FindingError, info, warning
from eagle3_backend.stages.bench_engines import BenchEngines, Server
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
    """The cells of a bench: ``loads`` are the prompts to ask at each number of requests in flight. Pairs of rounds that
    an earlier attempt kept are taken up."""

    def __init__(self, engines: BenchEngines, loads: Mapping[int, Sequence[Prompt]]) -> None:
        self._engines = engines
        self._loads = loads
        self._plain: dict[tuple[int, int], Timed] = {}
        self.cells: list[Cell] = []
        self.lost: list[dict[str, str | int]] = []

    def is_whole(self, way: Way) -> bool:
        """Whether no pair of this way is left to measure."""
        return all(
            self._engines.kept.pair(way, concurrency, number, prompts)
            for concurrency in self._loads
            for number, prompts in self._rounds(concurrency)
        )

    def alone(self, plain: Server, ways: Sequence[Way]) -> None:
        """Ask the target alone, for hosts without room for two servers: every round that one of the ways has not been
        paired with yet, since both halves of a pair are of one attempt."""
        for concurrency in self._loads:
            for number, prompts in self._rounds(concurrency):
                if all(self._engines.kept.pair(way, concurrency, number, prompts) for way in ways):
                    self._engines.count(len(prompts))
                else:
                    self._plain[concurrency, number] = self._engines.round(plain, prompts)

    def beside(self, way: Way, plain: Server | None, drafted: Server) -> None:
        """One way at every load; with ``plain`` both servers in turn, so that drift of the machine meets both alike."""
        for concurrency in self._loads:
            pairs = []
            for number, prompts in self._rounds(concurrency):
                pair = self._engines.kept.pair(way, concurrency, number, prompts)
                if pair:
                    self._engines.count(len(prompts) * (2 if plain else 1))
                else:
                    pair = self._pair((concurrency, number), prompts, plain, drafted)
                    self._engines.kept.keep_pair(way, concurrency, number, prompts, pair, shared=plain is None)
                pairs.append(pair)
            drafts, plains = (tuple(pair[half] for pair in pairs) for half in (0, 1))
            self.cells.append(Cell(way, concurrency, drafts, plains))

    def _pair(
        self, place: tuple[int, int], prompts: Sequence[Prompt], plain: Server | None, drafted: Server
    ) -> tuple[Timed, Timed]:
        """(drafted, plain) of one round, measured now; the first one is asked by turns."""
        if plain is None:
            return self._engines.round(drafted, prompts), self._plain[place]
        if place[1] % 2 == 0:
            without = self._engines.round(plain, prompts)
            return self._engines.round(drafted, prompts), without
        return self._engines.round(drafted, prompts), self._engines.round(plain, prompts)

    def others(self, launches: Sequence[Launch], plain: Server | None) -> None:
        """The other ways, one server after the other. One that fails is told; what was measured stays."""
        for launch in launches:
            try:
                with ExitStack() as life:
                    self.beside(launch.way, plain, Server(self._engines, launch, life))
            except FindingError as problem:
                self._lose(launch.way, problem)

    def _rounds(self, concurrency: int) -> Iterator[tuple[int, Sequence[Prompt]]]:
        prompts = self._loads[concurrency]
        for number, start in enumerate(range(0, len(prompts), concurrency)):
            yield number, prompts[start : start + concurrency]

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
