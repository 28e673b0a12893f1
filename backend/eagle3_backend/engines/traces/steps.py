"""The decode steps of a trace: where each begins and ends, and when the drafter works in it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import List, Optional, Sequence, Tuple

from eagle3_backend.engines.traces.recording import Mark

IDLE = 10.0
"""A step that is this many times as long as the middle one has waited for work; it is left out."""

Span = Tuple[float, float]


@dataclass(frozen=True)
class Step:
    """One decode step: from its target's pass to the next one. ``target_end`` is when the target's pass ended;
    ``draft`` is when the drafter worked, as the engine marked it; ``sample`` when the sampler did. Microseconds."""

    begin: float
    end: float
    target_end: Optional[float] = None
    draft: Optional[Span] = None
    sample: Optional[Span] = None

    @property
    def length(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Steps:
    """The steps that shares are taken of: ``requests`` in each, and how many were left out: ``mixed`` with a prompt in
    them, ``other`` with other requests in them, waiting for work, or cut off by the trace's end."""

    chosen: Tuple[Step, ...]
    requests: Optional[int] = None
    mixed: int = 0
    other: int = 0


def steps_of(marks: Sequence[Mark]) -> Steps:
    """The decode steps among ``marks``: those with as many requests as most of them, so that they are alike."""
    passes = _joined([mark for mark in marks if mark.part.kind in ("decode", "prefill")])
    parts = sorted((mark for mark in marks if mark.part.kind in ("draft", "sample")), key=lambda mark: mark.begin)
    begins = [mark.begin for mark in parts]
    found: List[Tuple[Mark, Step]] = []
    for mark, following in zip(passes, passes[1:]):  # noqa: RUF007 - pairwise is younger than Python 3.9
        if mark.part.kind == "decode":
            inside = parts[bisect_left(begins, mark.begin) : bisect_left(begins, following.begin)]
            draft = _hull([one for one in inside if one.part.kind == "draft"])
            sample = _hull([one for one in inside if one.part.kind == "sample"])
            found.append((mark, Step(mark.begin, following.begin, mark.end, draft, sample)))
    mixed = sum(mark.part.kind == "prefill" for mark in passes)
    if not found:
        return Steps((), None, mixed, len(passes) - mixed)
    requests = Counter(mark.part.requests for mark, _ in found).most_common(1)[0][0]
    alike = [step for mark, step in found if mark.part.requests == requests]
    middle = median(step.length for step in alike)
    chosen = tuple(step for step in alike if step.length <= IDLE * middle)
    return Steps(chosen, requests, mixed, len(passes) - mixed - len(chosen))


def _joined(marks: Sequence[Mark]) -> List[Mark]:
    """The passes in order; one that several streams tell is told once."""
    joined: List[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.begin, mark.end)):
        last = joined[-1] if joined else None
        if last is not None and mark.part == last.part and mark.begin < last.end:
            joined[-1] = Mark(last.begin, max(last.end, mark.end), last.part)
        else:
            joined.append(mark)
    return joined


def _hull(marks: Sequence[Mark]) -> Optional[Span]:
    """From the first to the last: between two passes of a drafter nothing of the target runs."""
    return (min(mark.begin for mark in marks), max(mark.end for mark in marks)) if marks else None
