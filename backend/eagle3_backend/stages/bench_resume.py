"""Going on with a bench that was cut off: what is taken up, what is lost, and saying so."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from eagle3_backend.findings import info, warning
from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.stages.bench_engines import BenchEngines
from eagle3_backend.stages.bench_kept import FILE, Kept
from eagle3_backend.stages.context import StageContext


def take_up(context: StageContext, recipe: Mapping[str, Any]) -> Kept:
    """What attempts that were cut off left for this one, in an output directory with nothing else in it."""
    finished = read_manifest(context.output) is not None
    for path in context.output.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif finished or path.name != FILE:
            path.unlink()
    kept = Kept(context.output, context.attempt, recipe)
    if kept.begun_anew:
        tell_begun_anew(context, kept)
    elif kept.answers:
        attempts = f"attempt{'s' * (len(kept.attempts) > 1)} {', '.join(map(str, kept.attempts))}"
        context.report(
            info(
                "bench_taken_up",
                f"{kept.answers} answers of {attempts} are taken up, measured under exactly this recipe. "
                "A round that was cut off is measured anew with both servers.",
                path=FILE,
                actual=kept.answers,
            )
        )
    return kept


def tell_begun_anew(context: StageContext, kept: Kept) -> None:
    """What was kept is of no use to this attempt."""
    context.report(
        warning(
            "bench_begun_anew",
            f"What an earlier attempt measured is not taken up: {kept.begun_anew}. Everything is measured anew.",
            path=FILE,
            expected="the same recipe",
            actual=kept.begun_anew,
        )
    )


def tell_kept(context: StageContext, engines: BenchEngines, taken: int) -> None:
    """An attempt leaves before its end: ``taken`` answers were there when it began."""
    kept = engines.kept.answers
    lost = max(0, engines.asked - (kept - taken))
    words = f"{kept} of {engines.total} answers are kept for the next attempt"
    if lost:
        words += f"; {lost} of unfinished pairs of rounds are lost and will be asked again"
    context.journal.note(words + ".")


def over_starts(kept: Kept, taken: int) -> dict[str, Any]:
    """Over how many starts of the stage the result was measured; ``taken`` answers were there when the last began."""
    return {"starts": len(kept.attempts), "attempts": kept.attempts, "answers": kept.answers, "taken_up": taken}
