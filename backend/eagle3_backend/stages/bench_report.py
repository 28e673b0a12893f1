"""From measured answers to the figures of a bench: speed, losslessness, and what each depth would give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3_backend.engines.answers import Answer, Prompt
from eagle3_backend.engines.cells import Cell, Pair
from eagle3_backend.engines.measured import COLLAPSED, Measured
from eagle3_backend.engines.metrics import length_at
from eagle3_backend.engines.statistics import Interval, acceptance_interval, speed_ratio_interval


def speed(pairs: Sequence[Pair], resamples: int, seed: int) -> Interval:
    """Single-stream tokens a second with the drafter over those without, paired by prompt. Prefill is included."""
    return speed_ratio_interval([pair.speeds for pair in pairs], resamples, seed)


def timed_rows(cell: Cell) -> list[dict[str, Any]]:
    """The pairs of a cell as they are kept in bench.json: enough to resample every figure."""
    return [
        {
            "way": cell.way.name,
            "depth": cell.way.depth,
            "concurrency": cell.concurrency,
            "id": pair.plain.prompt.id,
            "source": pair.plain.prompt.source,
            "drafted": _timed(pair.drafted),
            "plain": _timed(pair.plain),
            "accepted_tokens": pair.drafted.steps.accepted,
            "verify_steps": pair.drafted.steps.count,
        }
        for pair in cell.pairs
    ]


def _timed(answer: Answer) -> dict[str, Any]:
    """Tokens and seconds of an answer, and when each part of it came."""
    arrivals = [[round(seconds, 5), tokens] for seconds, tokens in answer.arrivals]
    return {"tokens": answer.generated, "seconds": round(answer.seconds, 5), "arrivals": arrivals}


@dataclass(frozen=True)
class StepCost:
    """Measured single-stream cost: ``plain`` seconds a token without a drafter, ``drafted`` seconds a verify step at
    ``depth``."""

    plain: float
    drafted: float
    depth: int

    @classmethod
    def of(cls, pairs: Sequence[Pair], depth: int) -> StepCost:
        plain = sum(pair.plain.seconds for pair in pairs) / sum(len(pair.plain.tokens) for pair in pairs)
        # The first token comes from the prefill, which is a step of its own.
        steps = sum(pair.drafted.steps.count + 1 for pair in pairs)
        return cls(plain, sum(pair.drafted.seconds for pair in pairs) / steps, depth)

    def at(self, depth: int) -> float:
        """Seconds a step at another depth: every draft token is taken to cost the same.

        A verify step does all that a plain one does, so one that was measured cheaper is noise. With this bound no
        estimated speed-up exceeds its acceptance length.
        """
        return self.plain + max(0.0, self.drafted - self.plain) * depth / self.depth


def by_depth(sets: Sequence[Measured], cost: StepCost, untimed: Collection[str] = ()) -> list[dict[str, Any]]:
    """For every depth from 0 (no drafter) to the measured one: acceptance length and single-stream speed-up by set.

    Only the deepest acceptance is measured. The shallower ones follow from the acceptance by position, and the
    speed-ups from the measured cost of a step with and without the drafter; both are estimates and marked so. Where an
    engine tells no acceptance by position, there is nothing between the two. Of ``untimed`` sets no speed is told: the
    cost of a step is not theirs.
    """
    rows = []
    by_position = all(each.counted.position_rates for each in sets)
    for depth in range(cost.depth + 1) if by_position else (0, cost.depth):
        lengths = {each.name: _length(each, depth, cost.depth) for each in sets}
        rows.append(
            {
                "depth": depth,
                "acceptance_length": {name: round(length, 4) for name, length in lengths.items()},
                "acceptance": "measured" if depth in (0, cost.depth) else "estimated",
                "speedup_c1": {
                    name: round(length * cost.plain / cost.at(depth), 4)
                    for name, length in lengths.items()
                    if name not in untimed
                },
                "speed": "measured" if depth == 0 else "estimated",
            }
        )
    return rows


def _length(measured: Measured, depth: int, deepest: int) -> float:
    counted = measured.counted
    return (counted.length or 1.0) if depth == deepest else length_at(counted.position_rates, depth)


def recommend(
    rows: Sequence[Mapping[str, Any]], measured: Measured, speed: Interval, resamples: int, seed: int
) -> tuple[int, str]:
    """The depth to serve with, judged on one set, and why. 0 means: without the drafter.

    It is the one with the highest estimated speed-up among those whose acceptance length is clearly above 1. ``speed``
    is the measured speed-up at the deepest; where it proves nothing, the reason says so.
    """
    name = measured.name
    lows = {row["depth"]: _length_low(measured, row["depth"], resamples, seed) for row in rows}
    accepted = [row for row in rows if lows[row["depth"]] > COLLAPSED]
    if not accepted:
        return 0, f"no depth has an acceptance length clearly above 1 ({name}): none has a lower bound over {COLLAPSED}"
    best = max((rows[0], *accepted), key=lambda row: (row["speedup_c1"][name], -row["depth"]))
    if best["depth"] == 0:
        return 0, f"no depth is estimated to be faster than the target alone ({name})"
    reason = f"depth {best['depth']} has the highest estimated speed-up ({name}): {best['speedup_c1'][name]:.2f}"
    if speed.low <= 1.0 <= speed.high:
        reason += f"; the measured one, {speed.low:.2f} to {speed.high:.2f}, includes 1.0 and proves no gain"
    return int(best["depth"]), reason


def _length_low(measured: Measured, depth: int, resamples: int, seed: int) -> float:
    """Lower bound of the acceptance length, had no step accepted more than ``depth`` tokens."""
    if depth == 0:
        return 1.0
    rows = [(answer.steps.within(depth), answer.steps.count) for answer in measured.answers if answer.steps.count]
    return acceptance_interval(rows, resamples, seed).low if rows else 1.0


def lossless(plain: Mapping[Prompt, Answer], drafted: Mapping[Prompt, Sequence[Answer]]) -> int:
    """How many prompts got the same token ids in every answer with the drafter as without it."""
    return sum(
        all(answer.tokens == reference.tokens for answer in drafted[prompt]) for prompt, reference in plain.items()
    )
