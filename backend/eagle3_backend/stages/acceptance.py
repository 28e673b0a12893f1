"""Counting what a drafter gets right.

A row is right at step k if the drafted token equals the target's own greedy choice over its full vocabulary, whatever
the drafter's reduced vocabulary can express. U_k are the rows used at step k.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Counts:
    """Sums over rows for each step, [K] each; counts of two sets add up.

    ``used`` rows of U_k, ``right`` of them at step k, ``chain`` right at 0..k, ``reached`` right at 0..k-1; ``loss`` is
    the sum of the rows' losses.
    """

    used: Tensor
    right: Tensor
    chain: Tensor
    reached: Tensor
    loss: Tensor

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def metrics(self, prefix: str, weights: Tensor) -> dict[str, float]:
        """The named figures; ``weights`` [K] are the loss weights of the steps.

        ``acc_k`` = right / used, ``cond_acc_k`` = chain / reached, ``accept_len`` = 1 + sum of chain / used: a greedy
        chain of K drafts, the target's own token included.
        """
        used = self.used.clamp(min=1)
        loss = self.loss / used
        values = {f"{prefix}/loss": float((weights * loss).sum())}
        for step in range(len(self.used)):
            values[f"{prefix}/loss_{step}"] = float(loss[step])
            values[f"{prefix}/acc_{step}"] = float(self.right[step] / used[step])
            values[f"{prefix}/cond_acc_{step}"] = float(self.chain[step] / self.reached[step].clamp(min=1))
        values[f"{prefix}/accept_len"] = 1.0 + float((self.chain / used).sum())
        return values


def right_rows(choices: Tensor, valid: Tensor, target_ids: Tensor, truth: Tensor) -> Tensor:
    """Where a used row is right [K, M] bool: ``choices`` [K, M], mapped by ``target_ids`` [DV], against ``truth`` [M].

    ``truth`` holds the target's choice that row m predicts at step 0, so step k of row m is compared with row m + k.
    """
    right = torch.zeros_like(valid)
    drafted = target_ids[choices]
    for step in range(len(valid)):
        rows = valid.shape[1] - step
        right[step, :rows] = drafted[step, :rows] == truth[step:]
    return right & valid


def count(right: Tensor, valid: Tensor, losses: Tensor) -> Counts:
    """Counts of one batch from ``right`` and ``valid`` [K, M] bool and the rows' ``losses`` [K, M]."""
    chain = right.long().cumprod(0).bool()
    before = torch.cat([torch.ones_like(chain[:1]), chain[:-1]])
    used, hits, chained, reached = (entry.sum(1).double() for entry in (valid, right, chain & valid, before & valid))
    return Counts(used, hits, chained, reached, losses.double().sum(1))


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
