"""What speculation can win, by the measured times of steps with and without a drafter.

Speed-up = tokens a step x time of a plain step / time of a step with drafting. This is Theorem 3.8 of Leviathan, Kalman
and Matias, "Fast Inference from Transformers via Speculative Decoding" (arXiv:2211.17192), with two of its assumptions
replaced by measured times: that a drafter's pass costs a constant share of the target's, and that verifying k + 1
tokens costs as much as decoding one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.engines.statistics import Interval

ASSUMPTIONS = (
    "Both servers ran under the profiler, which slows the host: where host gaps are large, the true ratio differs.",
    "Decode steps with the same number of requests alone are compared; prompts cost what they cost without a drafter.",
    "A step is as long on every rank: that of the first rank is used.",
    "The length is that of the requests which were profiled; a few short ones, so use that of a bench to decide.",
)

RESAMPLES = 1000


@dataclass(frozen=True)
class Profiled:
    """What was measured, in microseconds a step: ``plain`` without a drafter, ``steps`` with it, ``draft`` the part of
    each that the drafter took (empty where it is not told apart). ``accepted`` is (accepted drafts, steps) of each
    request, ``depth`` the drafts of a step."""

    plain: Sequence[float]
    steps: Sequence[float]
    draft: Sequence[float]
    accepted: Sequence[Tuple[int, int]]
    depth: int


def gains(measured: Profiled, seed: int = 17) -> Dict[str, Any]:
    """Every figure as an interval over steps and requests, in JSON; None where it was not measured, and why.

    ``speedup`` is that of this drafter, ``perfect_drafter`` with every draft accepted, ``free_drafter`` at the measured
    length with drafting that takes no time, ``most`` with both. ``break_even_length`` is the length at which drafting
    neither wins nor loses, ``plain_over_step`` the factor by which any length becomes a speed-up.
    """
    draw = random.Random(seed)
    whole = measured.depth + 1
    told = bool(measured.draft)

    def figure(of: Callable[[_Means], float], *, plain: bool = False, length: bool = False, draft: bool = False) -> Any:
        missing = (plain and not measured.plain) or (length and not measured.accepted) or (draft and not told)
        return None if missing or not measured.steps else _interval(measured, of, draw)

    return {
        "depth": measured.depth,
        "length": figure(lambda one: one.length, length=True),
        "step_ms": figure(lambda one: one.step / 1000),
        "draft_ms": figure(lambda one: one.draft / 1000, draft=True),
        "verify_ms": figure(lambda one: (one.step - one.draft) / 1000, draft=True),
        "plain_step_ms": figure(lambda one: one.plain / 1000, plain=True),
        "plain_over_step": figure(lambda one: one.plain / one.step, plain=True),
        "break_even_length": figure(lambda one: one.step / one.plain, plain=True),
        "speedup": figure(lambda one: one.length * one.plain / one.step, plain=True, length=True),
        "perfect_drafter": figure(lambda one: whole * one.plain / one.step, plain=True),
        "free_drafter": figure(
            lambda one: one.length * one.plain / (one.step - one.draft), plain=True, length=True, draft=True
        ),
        "most": figure(lambda one: whole * one.plain / (one.step - one.draft), plain=True, draft=True),
        "not_measured": _missing(measured),
        "assumptions": list(ASSUMPTIONS),
    }


def at_length(found: Mapping[str, Any], length: Mapping[str, Any]) -> Optional[Dict[str, float]]:
    """The speed-up at another acceptance length, such as a bench's at the same depth: both intervals multiplied, which
    is wider than need be. None where one of them is unknown."""
    factor = found.get("plain_over_step")
    if not factor or not length or length.get("mean") is None:
        return None
    return {edge: round(float(factor[edge]) * float(length[edge]), 4) for edge in ("mean", "low", "high")}


@dataclass(frozen=True)
class _Means:
    plain: float
    step: float
    draft: float
    length: float


def _interval(measured: Profiled, of: Callable[[_Means], float], draw: random.Random) -> Dict[str, float]:
    """Mean and 95 % interval by bootstrap: steps and requests are drawn anew, each kind by itself."""
    drafted = list(zip(measured.steps, measured.draft or [0.0] * len(measured.steps)))
    plain, accepted = list(measured.plain), list(measured.accepted)
    found = sorted(
        of(_means(_again(plain, draw), _again(drafted, draw), _again(accepted, draw))) for _ in range(RESAMPLES)
    )
    edge = int(0.025 * RESAMPLES)
    interval = Interval(of(_means(plain, drafted, accepted)), found[edge], found[-1 - edge], len(drafted)).to_json()
    interval["steps"] = interval.pop("prompts")
    return interval


def _again(rows: List[Any], draw: random.Random) -> List[Any]:
    return draw.choices(rows, k=len(rows)) if rows else rows


def _means(
    plain: Sequence[float], drafted: Sequence[Tuple[float, float]], accepted: Sequence[Tuple[int, int]]
) -> _Means:
    steps = sum(row[1] for row in accepted)
    return _Means(
        plain=sum(plain) / len(plain) if plain else 0.0,
        step=sum(row[0] for row in drafted) / len(drafted),
        draft=sum(row[1] for row in drafted) / len(drafted),
        length=1.0 + sum(row[0] for row in accepted) / steps if steps else 1.0,
    )


def _missing(measured: Profiled) -> List[str]:
    reasons = []
    if not measured.steps:
        reasons.append("no decode step with drafting was found")
    if not measured.plain:
        reasons.append("no decode step without a drafter and with as many requests was found")
    if not measured.draft:
        reasons.append("the drafter's passes are not told apart")
    if not measured.accepted:
        reasons.append("no acceptance length was measured")
    return reasons
