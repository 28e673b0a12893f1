"""trace: where a decode step's time goes, from the engine's own profiler, with the drafter and without it.

Each server answers a few prompts at once, of which some tens of steps are profiled. The traces stay where they are made
and are reduced there; what goes on is shares, times, and what speculation can win by them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from eagle3_backend.engines.answers import Answer
from eagle3_backend.engines.launch import PROFILE_DELAY, with_measurement
from eagle3_backend.engines.plan import Plan
from eagle3_backend.engines.traces.gains import Profiled, gains
from eagle3_backend.engines.traces.reduction import Timeline, timelines
from eagle3_backend.engines.traces.report import findings_of, profile
from eagle3_backend.findings import FindingError, warning
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.disk import check_forecast
from eagle3_backend.stages.drafted_engine import drafted_engine
from eagle3_backend.stages.profiled_engine import profile_server

STEP_BYTES = 1_000_000
"""Upper estimate of a packed trace, a step and a GPU; the profiler first writes it unpacked, `UNPACKED` times as large,
to the folder for temporary files."""
UNPACKED = 15
FLOOR = 1 << 30
"""Bytes that are left free in the workspace."""
SPARE_TOKENS = 8
"""Tokens that are asked for beyond the profiled steps, so that all requests are in flight to the last of these."""


@dataclass(frozen=True)
class _Server:
    """What one profiled server gave: a timeline for each rank, its answers, and the size of its traces."""

    ranks: Sequence[Timeline]
    answers: Sequence[Answer]
    files: Sequence[Path]
    version: str

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def run(context: StageContext) -> None:
    """Profile, reduce, and write trace.json. Raises FindingError, Stopped."""
    shutil.rmtree(context.output)
    context.output.mkdir()
    parameters = context.parameters
    facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
    model = Path(facts["model"])
    plan = drafted_engine(context)
    _check_disk(context)
    tokens = parameters.max_new_tokens
    told = _progress(context)
    drafted = _profiled(context, model, with_measurement(plan, drafting=True), "drafted", tokens, told)
    plain = None
    if parameters.control:
        plan = with_measurement(context.spec["engine"], drafting=False)
        # A step gives one token here: no more are asked for than are profiled.
        enough = PROFILE_DELAY + parameters.steps + SPARE_TOKENS
        plain = _profiled(context, model, plan, "plain", min(tokens, enough), told)
    summary = _summary(context, drafted, plain)
    write_json(context.output / "trace.json", summary)
    context.finish(summary)


def _check_disk(context: StageContext) -> None:
    """Raise FindingError when the traces, packed here and unpacked on their way, may not find room."""
    parameters = context.parameters
    packed = parameters.steps * parameters.tensor_parallel * STEP_BYTES
    check_forecast(context.output, packed * (1 + parameters.control), FLOOR)
    check_forecast(Path(tempfile.gettempdir()), packed * UNPACKED, 0)


def _progress(context: StageContext) -> Callable[[], None]:
    """Counts answers, two for each prompt and server, in the journal."""
    total = 2 * context.parameters.concurrency * (1 + context.parameters.control)
    done = count(1)
    return lambda: context.journal.progress(next(done), total, "answers")


def _profiled(
    context: StageContext, model: Path, plan: Plan, name: str, tokens: int, told: Callable[[], None]
) -> _Server:
    """One server profiled and its traces reduced. Raises FindingError, Stopped."""
    directory = context.output / "traces" / name
    directory.mkdir(parents=True)
    answers, files, version = profile_server(context, model, plan, directory, tokens, told)
    ranks: list[Timeline] = []
    problems: list[FindingError] = []
    for path in files:
        try:
            ranks += timelines(path)
        except FindingError as problem:
            # A process of the engine that runs no model may write a trace, too; a whole one of another says enough.
            problems.append(problem)
    if not ranks:
        raise problems[0]
    on_device = [rank for rank in ranks if rank.on_device]
    made = _Server(on_device or ranks, answers, files, version)
    context.refuse(*findings_of(made.ranks))
    context.journal.note(f"Reduced {len(files)} trace(s) of {made.bytes / 1e6:.1f} MB ({name})")
    return made


def _summary(context: StageContext, drafted: _Server, plain: _Server | None) -> dict[str, Any]:
    parameters = context.parameters
    with_drafter, first = profile(drafted.ranks), drafted.ranks[0]
    without = profile(plain.ranks) if plain else None
    comparable = plain is not None and plain.ranks[0].steps.requests == first.steps.requests
    if plain is not None and not comparable:
        context.report(
            warning(
                "steps_not_comparable",
                "With the drafter and without it most steps had different numbers of requests: no speed-up is told.",
                path="trace.concurrency",
                expected=first.steps.requests,
                actual=plain.ranks[0].steps.requests,
                fix="Raise max_new_tokens, so that all requests are answered while steps are profiled.",
            )
        )
    measured = Profiled(
        plain=plain.ranks[0].step_us if plain is not None and comparable else [],
        steps=first.step_us,
        draft=first.draft_us if first.drafter_told_by else [],
        accepted=[(answer.steps.accepted, answer.steps.count) for answer in drafted.answers if answer.steps.count],
        depth=parameters.depth,
    )
    servers = [drafted, *([plain] if plain else [])]
    return {
        "engine": {"name": context.spec["engine"]["engine"], "version": drafted.version},
        "drafted": with_drafter,
        "plain": without,
        "gains": gains(measured),
        "traces": {"files": sum(len(one.files) for one in servers), "bytes": sum(one.bytes for one in servers)},
    }
