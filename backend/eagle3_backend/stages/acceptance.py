"""A server's way through a conversation, from the rows that a drafter gets right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor


@dataclass(frozen=True)
class Walk:
    """A server's way through one conversation: drafting ``steps``, and how many of them accepted more than k drafts."""

    steps: int
    accepted: tuple[int, ...]


def walk(right: Tensor, valid: Tensor, used: Tensor) -> Walk:
    """Draft as a server would: from the first row of each answer on, advancing by the accepted drafts and one.

    ``right`` and ``valid`` are [K, M] of one conversation, ``used`` [M] its rows' positions. A step that the end of the
    answer cuts short is left out: its length says nothing about the drafter.
    """
    depth = len(right)
    accepted = [0] * depth
    steps = 0
    for start, end in _answers(used):
        row = start
        while row < end:
            taken = 0
            while taken < depth and bool(right[taken, row]):
                taken += 1
            if taken < depth and not bool(valid[taken, row]):
                break
            steps += 1
            for position in range(taken):
                accepted[position] += 1
            row += taken + 1
    return Walk(steps, tuple(accepted))


def _answers(used: Tensor) -> Iterable[tuple[int, int]]:
    """Ranges of consecutive rows: one answer each, since at least one token of the prompt lies between two."""
    breaks = (used.diff() != 1).nonzero().squeeze(-1) + 1
    edges = [0, *breaks.tolist(), len(used)]
    return pairwise(edges)
