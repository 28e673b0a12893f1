"""Judges acceptance figures, and whether two of them may be compared.

Everywhere in this product an acceptance length is tokens a verify step with the target's own token: 1.00 means that
nothing was accepted. Depth is the number of drafted tokens in a chain.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.engines.metrics import Drafting
from eagle3_backend.findings import Finding, error, warning

COLLAPSED = 0.02
"""Accepted tokens a step below which a drafter does nothing for its target."""
CONTEXT_DROP = 0.6
"""A longest-context bucket below this share of the shortest one's accepted tokens is a drop."""
ENOUGH_DRAFTS = 100
"""Verify steps below which an acceptance is no evidence."""

NOTHING = ("spec_algorithm_mismatch", "lm_head_missing", "d2t_missing", "layer_names_layout", "drafter_untrained")
FIRST_POSITION = ("aux_layers_offset", "aux_layers_missing", "norm_before_residual_unsupported", "rope_theta_mismatch")
LATER_POSITIONS = ("ttt_steps_short", "norm_output_mismatch", "draft_cache_stale")
LOW = ("training_data_small", "responses_not_regenerated", *FIRST_POSITION, "think_mode_mismatch")
"""Suspects of each kind of low figure, most likely first; most are codes of findings that a check can make."""

FIRST_LOW = 0.25
LATER_FALL = 0.35
"""A first position below `FIRST_LOW` is low; a second one below this share of the first has collapsed."""


def suspects(counted: Drafting) -> Tuple[str, ...]:
    """Why these figures would be low, most likely cause first; empty where they are not, or tell nothing."""
    length = counted.length
    if length is None or counted.drafts < ENOUGH_DRAFTS:
        return ()
    if length - 1.0 < COLLAPSED:
        return NOTHING
    rates = counted.position_rates
    first = rates[0] if rates else counted.rate or 0.0
    if first < FIRST_LOW:
        return LOW
    if len(rates) > 1 and rates[1] < LATER_FALL * first:
        return LATER_POSITIONS
    return ()


def judge(counted: Drafting) -> List[Finding]:
    """Whether the figures can be right, and whether the drafter does anything."""
    found = []
    if counted.exact and counted.by_position and _contradiction(counted):
        found.append(
            warning(
                "metric_labels_inconsistent",
                f"The figures contradict each other: {_contradiction(counted)}.",
                path="metrics",
                actual=list(counted.by_position),
                fix="Two servers or two depths are mixed in them: take the difference of two scrapes of one server.",
            )
        )
    length = counted.length
    if length is not None and length - 1.0 < COLLAPSED:
        found.append(
            error(
                "acceptance_collapse",
                f"Almost nothing is accepted: length {length:.2f} over {counted.drafts:.0f} verify steps, where 1.00 "
                "means that drafting is at work and every draft is wrong.",
                path="acceptance_length",
                actual=round(length, 4),
                fix="Check in this order: " + ", ".join(NOTHING) + ".",
            )
        )
    return found


def _contradiction(counted: Drafting) -> str:
    places, tolerance = counted.by_position, 0.002 * counted.drafts * len(counted.by_position) + 0.5
    if abs(sum(places) - counted.accepted) > tolerance:
        return f"the positions add up to {sum(places):.0f}, {counted.accepted:.0f} tokens were accepted"
    if counted.drafted > len(places) * counted.drafts + tolerance:
        return f"{counted.drafted:.0f} tokens drafted in {counted.drafts:.0f} steps of {len(places)} at most"
    if any(later > earlier + tolerance for earlier, later in zip((counted.drafts, *places), places)):
        return "a position is accepted more often than the one before it"
    return ""


@dataclass(frozen=True)
class Measurement:
    """An acceptance length with the conditions that it holds for; None is not known."""

    engine: str
    depth: Optional[int]
    length: Optional[float]
    temperature: Optional[float] = None
    dataset: Optional[str] = None
    max_new_tokens: Optional[int] = None
    concurrency: Optional[int] = None
    includes_bonus: bool = True


_LENGTHS = ("mean_acceptance_length", "acceptance_length", "accept_length", "avg_spec_accept_length")


def read_measurement(values: Mapping[str, Any]) -> Measurement:
    """A measurement as either engine's tools write it. Both count the target's own token; SGLang's number of draft
    tokens counts the root, so that 4 of them at top-k 1 are a depth of 3."""
    sglang = values.get("engine") == "sglang"
    steps, drafted = values.get("num_steps"), values.get("num_draft_tokens")
    if not sglang:
        depth = values.get("num_speculative_tokens", values.get("depth"))
    elif steps is not None:
        depth = steps
    else:
        depth = None if drafted is None else drafted - 1
    return Measurement(
        engine=str(values.get("engine", "")),
        depth=depth,
        length=next((float(values[name]) for name in _LENGTHS if values.get(name) is not None), None),
        temperature=values.get("temperature"),
        dataset=values.get("dataset"),
        max_new_tokens=values.get("max_new_tokens"),
        concurrency=values.get("concurrency"),
        includes_bonus=bool(values.get("includes_bonus", True)),
    )


_CONDITIONS = {
    "depth": (
        "acceptance_depth_mismatch",
        "The depths differ: {left} and {right} drafted tokens (SGLang's number of draft tokens counts the root).",
    ),
    "temperature": (
        "acceptance_temperature",
        "The temperature differs: {left} and {right}; a higher one accepts less.",
    ),
    "dataset": ("acceptance_prompts_differ", "The prompts differ: {left} and {right}."),
    "max_new_tokens": ("acceptance_output_length_differs", "The answers may have {left} and {right} tokens at most."),
    "concurrency": (
        "acceptance_concurrency_differs",
        "The concurrency differs: {left} and {right} requests in flight.",
    ),
    "includes_bonus": ("acceptance_definition_differs", "Only one of the lengths counts the target's own token."),
}


def compare(left: Measurement, right: Measurement) -> List[Finding]:
    """Conditions in which two measurements differ, each a warning: the lengths then say nothing about the drafters."""
    found = []
    for field in fields(Measurement):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if field.name in _CONDITIONS and None not in (one, other) and one != other:
            code, text = _CONDITIONS[field.name]
            message = text.format(left=_plain(one), right=_plain(other)) + " The two lengths cannot be compared."
            fix = f"Measure both with the same {field.name}."
            found.append(warning(code, message, path=field.name, expected=one, actual=other, fix=fix))
    return found


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Bucket:
    """Acceptance of the verify steps whose context, in tokens, lies below ``until``."""

    until: int
    drafting: Drafting


def judge_context(buckets: Sequence[Bucket]) -> List[Finding]:
    """Whether acceptance fades with the context, and whether at once or steadily: those have different causes."""
    known = [bucket for bucket in buckets if bucket.drafting.length and bucket.drafting.drafts >= ENOUGH_DRAFTS]
    if len(known) < 2:
        return []
    accepted = [(bucket.drafting.length or 1.0) - 1.0 for bucket in known]
    if accepted[0] <= 0 or accepted[-1] >= CONTEXT_DROP * accepted[0]:
        return []
    falls = [accepted[place] - accepted[place + 1] for place in range(len(accepted) - 1)]
    steepest = max(range(len(falls)), key=lambda place: falls[place])
    step = len(falls) > 1 and falls[steepest] > 0.7 * (accepted[0] - accepted[-1])
    shape = (
        f"it falls at once past {known[steepest].until} tokens: a position table or a window of that length"
        if step
        else "it falls steadily: a rope scaling that was lost, or training on short rows alone"
    )
    lengths = [round(value + 1.0, 3) for value in accepted]
    return [
        warning(
            "acceptance_context_drop",
            f"Acceptance fades with the context, from length {lengths[0]:g} to {lengths[-1]:g}: {shape}.",
            path="acceptance_length",
            expected=lengths[0],
            actual=lengths[-1],
            fix="Compare rope and max_position_embeddings of drafter and target; train on rows as long as served.",
        )
    ]


def reconcile(counters: Drafting, logged: Drafting) -> List[Finding]:
    """Whether the counters and the log's windows of one stretch of time tell the same acceptance, within 5 %.

    The log misses what came after its last window, so only the lengths are compared, and only where it saw most steps.
    """
    one, other = counters.length, logged.length
    if one is None or other is None or logged.drafts < 0.8 * counters.drafts or abs(one - other) <= 0.05 * one:
        return []
    return [
        warning(
            "metrics_disagree",
            f"The counters tell an acceptance length of {one:.3f}, the log's own windows {other:.3f}.",
            path="metrics",
            expected=round(one, 4),
            actual=round(other, 4),
            fix="Other traffic, a restart, or another server's log is mixed in.",
        )
    ]
