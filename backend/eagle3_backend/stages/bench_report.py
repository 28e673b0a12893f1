"""From measured answers to the figures of a bench: acceptance, speed, losslessness, and what each depth would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3_backend.engines.metrics import Drafting, length_at
from eagle3_backend.findings import Finding, error, warning
from eagle3_backend.stages.bench_client import Answer, Prompt
from eagle3_backend.stages.overlap import Overlap
from eagle3_backend.stages.statistics import Interval, acceptance_interval, repeated_share, speed_ratio_interval

LOOP_SHARE = 0.5
"""An answer is a loop when more than this share of its 4-grams repeats an earlier one."""

LOOPS_TOLERATED = 0.2
"""Share of looping answers above which an acceptance length says little about real text."""

COLLAPSED = 1.05
"""An acceptance length below this means that next to nothing is accepted."""


@dataclass(frozen=True)
class Measured:
    """One prompt set, answered with the drafter: the answers, and what the engine's counters grew by meanwhile."""

    name: str
    answers: Sequence[Answer]
    counted: Drafting
    overlaps: Mapping[str, Overlap]

    @property
    def steps(self) -> int:
        return sum(len(answer.accepted) for answer in self.answers)

    @property
    def looping(self) -> float:
        """Share of answers that are loops."""
        loops = sum(repeated_share(answer.tokens) > LOOP_SHARE for answer in self.answers)
        return loops / len(self.answers) if self.answers else 0.0


@dataclass(frozen=True)
class Pair:
    """One prompt, one request at a time, with and without the drafter."""

    drafted: Answer
    plain: Answer


def findings_of(measured: Measured) -> list[Finding]:
    """What is wrong with a measurement. Raises nothing; an error means that its figure is void."""
    counted, path = measured.counted, f"bench.{measured.name}"
    if not counted.drafts:
        return [
            error(
                "no_drafts_counted",
                "The engine answered, but its counters saw no draft: the drafter is not in use.",
                path=path,
                expected="> 0 drafts",
                actual=0,
                fix="Look in the engine's log for the method and drafter that it took.",
            )
        ]
    found = []
    requests = (measured.steps, sum(sum(answer.accepted) for answer in measured.answers))
    if requests != (counted.drafts, counted.accepted) or counted.contradicts_itself:
        found.append(
            warning(
                "metrics_disagree",
                "The engine's counters and its figures for each request differ: other traffic or a restart.",
                path=path,
                expected={"drafts": requests[0], "accepted": requests[1]},
                actual={"drafts": counted.drafts, "accepted": counted.accepted, "by_position": counted.by_position},
                fix="Measure again with nothing else talking to this engine.",
            )
        )
    if counted.length is not None and counted.length < COLLAPSED:
        found.append(
            warning(
                "acceptance_collapse",
                f"Next to nothing is accepted: length {counted.length:.2f}, where 1.00 is nothing at all.",
                path=path,
                expected=f">= {COLLAPSED}",
                actual=round(counted.length, 4),
                fix="Compare with evaluate's acceptance: if that is good, the engine reads the drafter wrong.",
            )
        )
    if measured.looping > LOOPS_TOLERATED:
        found.append(
            warning(
                "acceptance_degenerate_output",
                f"{measured.looping:.0%} of the answers are loops, which any drafter predicts: the figure flatters.",
                path=path,
                expected=f"<= {LOOPS_TOLERATED:.0%}",
                actual=round(measured.looping, 4),
                fix="Measure shorter answers (max_new_tokens) or other prompts.",
            )
        )
    return found


def acceptance(measured: Measured, resamples: int, seed: int) -> dict[str, Any]:
    """The acceptance length from the counters, with an interval over prompts."""
    counted = measured.counted
    rows = [(sum(answer.accepted), len(answer.accepted)) for answer in measured.answers if answer.accepted]
    interval = acceptance_interval(rows, resamples, seed)
    return {
        **interval.to_json(),
        "mean": round(counted.length or 1.0, 4),
        "steps": int(counted.drafts),
        "by_position": [round(rate, 4) for rate in counted.position_rates],
        "looping_answers": round(measured.looping, 4),
        "overlap_13gram": {name: found.to_json() for name, found in measured.overlaps.items()},
    }


def speed(pairs: Sequence[Pair], resamples: int, seed: int) -> Interval:
    """Single-stream tokens a second with the drafter over those without, paired by prompt. Prefill is included."""
    rows = [
        (len(pair.drafted.tokens), pair.drafted.seconds, len(pair.plain.tokens), pair.plain.seconds) for pair in pairs
    ]
    return speed_ratio_interval(rows, resamples, seed)


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
        steps = sum(len(pair.drafted.accepted) + 1 for pair in pairs)
        return cls(plain, sum(pair.drafted.seconds for pair in pairs) / steps, depth)

    def at(self, depth: int) -> float:
        """Seconds a step at another depth: every draft token is taken to cost the same.

        A verify step does all that a plain one does, so one that was measured cheaper is noise. With this bound no
        estimated speed-up exceeds its acceptance length.
        """
        return self.plain + max(0.0, self.drafted - self.plain) * depth / self.depth


def by_depth(sets: Sequence[Measured], cost: StepCost) -> list[dict[str, Any]]:
    """For every depth from 0 (no drafter) to the measured one: acceptance length and single-stream speed-up by set.

    Only the deepest acceptance is measured. The shallower ones follow from the acceptance by position, and the
    speed-ups from the measured cost of a step with and without the drafter; both are estimates and marked so.
    """
    rows = []
    for depth in range(cost.depth + 1):
        lengths = {each.name: length_at(each.counted.position_rates, depth) for each in sets}
        rows.append(
            {
                "depth": depth,
                "acceptance_length": {name: round(length, 4) for name, length in lengths.items()},
                "acceptance": "measured" if depth in (0, cost.depth) else "estimated",
                "speedup_c1": {
                    name: round(length * cost.plain / cost.at(depth), 4) for name, length in lengths.items()
                },
                "speed": "measured" if depth == 0 else "estimated",
            }
        )
    return rows


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
    rows = [
        (sum(min(tokens, depth) for tokens in answer.accepted), len(answer.accepted))
        for answer in measured.answers
        if answer.accepted
    ]
    return acceptance_interval(rows, resamples, seed).low if rows else 1.0


def lossless(plain: Mapping[Prompt, Answer], drafted: Mapping[Prompt, Sequence[Answer]]) -> int:
    """How many prompts got the same token ids in every answer with the drafter as without it."""
    return sum(
        all(answer.tokens == reference.tokens for answer in drafted[prompt]) for prompt, reference in plain.items()
    )


def answer_row(name: str, answer: Answer) -> dict[str, Any]:
    """One answer as it is kept in bench.json: enough to count again, and to replay the drafter over it."""
    return {
        "set": name,
        "id": answer.prompt.id,
        "source": answer.prompt.source,
        "prompt_tokens": list(answer.prompt_tokens),
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish_reason,
        "seconds": round(answer.seconds, 4),
        "accepted": list(answer.accepted),
    }
