"""A measured prompt set: what is wrong with it, its acceptance with an interval, and its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from eagle3_backend.engines.answers import Answer, Prompt, counted_of
from eagle3_backend.engines.metrics import Drafting
from eagle3_backend.engines.overlap import Overlap
from eagle3_backend.engines.statistics import acceptance_interval, repeated_share
from eagle3_backend.findings import Finding, error, warning

LOOP_SHARE = 0.5
"""An answer is a loop when more than this share of its 4-grams repeats an earlier one."""

LOOPS_TOLERATED = 0.2
"""Share of looping answers above which an acceptance length says little about real text."""

COLLAPSED = 1.05
"""An acceptance length below this means that next to nothing is accepted."""


@dataclass(frozen=True)
class Measured:
    """One prompt set, answered with ``depth`` drafted tokens a step: the answers, and the increase of the engine's
    counters meanwhile."""

    name: str
    answers: Sequence[Answer]
    counters: Drafting
    overlaps: Mapping[str, Overlap]
    depth: int

    @property
    def told(self) -> Drafting:
        """The sum of what each answer tells."""
        return counted_of(self.answers, self.depth)

    @property
    def counted(self) -> Drafting:
        """The figures that hold: the counters, or the sum over the answers where counters are estimates (SGLang)."""
        return self.counters if self.counters.exact else self.told

    @property
    def looping(self) -> float:
        """Share of answers that are loops."""
        loops = sum(repeated_share(answer.tokens) > LOOP_SHARE for answer in self.answers)
        return loops / len(self.answers) if self.answers else 0.0


def findings_of(measured: Measured) -> List[Finding]:
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
    told, counters = measured.told, measured.counters
    differ = told.drafts != counters.drafts or (counters.exact and told.accepted != counters.accepted)
    if differ or counted.contradicts_itself:
        found.append(
            warning(
                "metrics_disagree",
                "The engine's counters and its figures for each request differ: other traffic or a restart.",
                path=path,
                expected={"drafts": told.drafts, "accepted": told.accepted},
                actual={"drafts": counters.drafts, "accepted": counters.accepted, "by_position": counters.by_position},
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


def acceptance(measured: Measured, resamples: int, seed: int) -> Dict[str, Any]:
    """The acceptance length from the counters, with an interval over prompts; ``by_position`` is empty where the engine
    does not tell it."""
    counted = measured.counted
    rows = [(answer.steps.accepted, answer.steps.count) for answer in measured.answers if answer.steps.count]
    interval = acceptance_interval(rows, resamples, seed)
    return {
        **interval.to_json(),
        "mean": round(counted.length or 1.0, 4),
        "steps": int(counted.drafts),
        "by_position": [round(rate, 4) for rate in counted.position_rates],
        "by_source": by_source(told_by(measured.answers), resamples, seed),
        "looping_answers": round(measured.looping, 4),
        "overlap_13gram": {name: found.to_json() for name, found in measured.overlaps.items()},
    }


def by_source(rows: Iterable[Tuple[Prompt, int, int]], resamples: int, seed: int) -> Dict[str, Dict[str, Any]]:
    """The acceptance length of each kind of prompts (chat, code, ...), from (prompt, accepted, steps) of each."""
    found: Dict[str, List[Tuple[int, int]]] = {}
    for prompt, accepted, steps in rows:
        if steps:
            found.setdefault(prompt.source, []).append((accepted, steps))
    return {
        source: {**acceptance_interval(rows, resamples, seed).to_json(), "steps": sum(steps for _, steps in rows)}
        for source, rows in sorted(found.items())
    }


def told_by(answers: Iterable[Answer]) -> List[Tuple[Prompt, int, int]]:
    """(prompt, accepted, steps) of each answer."""
    return [(answer.prompt, answer.steps.accepted, answer.steps.count) for answer in answers]


def answer_row(name: str, answer: Answer) -> Dict[str, Any]:
    """One answer as it is kept in bench.json: enough to count again, and to replay the drafter over it where the engine
    tells each step (``accepted``)."""
    return {
        "set": name,
        "id": answer.prompt.id,
        "source": answer.prompt.source,
        "prompt_tokens": list(answer.prompt_tokens),
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish_reason,
        "seconds": round(answer.seconds, 4),
        "accepted": list(answer.steps.in_order),
        "verify_steps": answer.steps.count,
        "accepted_tokens": answer.steps.accepted,
    }
