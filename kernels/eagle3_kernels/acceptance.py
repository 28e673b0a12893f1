"""What a drafter's rows are worth: greedy hits counted, and the acceptance length that sampling would give expected.

A row is right at step k if the drafted token equals the target's own greedy choice over its full vocabulary, whatever
the drafter's reduced vocabulary can express. U_k are the rows used at step k. All sums stay on the device; `metrics`
fetches them in one transfer, so that counting a training step never waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Counts:
    """Sums over rows for each step, float64 [K] each; counts of two sets add up.

    ``used`` rows of U_k, ``right`` of them at step k, ``chain`` right at 0..k, ``reached`` right at 0..k-1; ``loss`` is
    the sum of the rows' losses, ``alpha`` that of their acceptance probabilities at step k and ``survival`` that of
    the products of these at 0..k.
    """

    used: Tensor
    right: Tensor
    chain: Tensor
    reached: Tensor
    loss: Tensor
    alpha: Tensor
    survival: Tensor

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, entry.name) + getattr(other, entry.name) for entry in fields(self)))

    def metrics(self, prefix: str, weights: Tensor) -> dict[str, float]:
        """The named figures; ``weights`` [K] are the loss weights of the steps.

        ``acc_k`` = right / used, ``cond_acc_k`` = chain / reached, ``accept_len`` = 1 + sum of chain / used: a greedy
        chain of K drafts, the target's own token included. Under sampling: ``alpha_k`` = alpha / used and
        ``expected_len`` = 1 + sum of survival / used.
        """
        used = self.used.clamp(min=1)
        loss = self.loss / used
        by_step = {
            "loss": loss,
            "acc": self.right / used,
            "cond_acc": self.chain / self.reached.clamp(min=1),
            "alpha": self.alpha / used,
        }
        single = {
            "loss": (weights.to(loss) * loss).sum(),
            "accept_len": 1 + (self.chain / used).sum(),
            "expected_len": 1 + (self.survival / used).sum(),
        }
        fetched = torch.cat([*by_step.values(), torch.stack(list(single.values()))]).tolist()
        names = [f"{name}_{step}" for name in by_step for step in range(len(used))] + list(single)
        return {f"{prefix}/{name}": value for name, value in zip(names, fetched, strict=True)}


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


def count(right: Tensor, valid: Tensor, losses: Tensor, alphas: Tensor) -> Counts:
    """Counts of one batch from ``right`` and ``valid`` [K, M] bool and the rows' ``losses`` and ``alphas`` [K, M]."""
    chain = right.long().cumprod(0).bool()
    before = torch.cat([torch.ones_like(chain[:1]), chain[:-1]])
    survival = alphas.double().cumprod(0) * valid
    columns = (valid, right, chain & valid, before & valid, losses, alphas * valid, survival)
    return Counts(*torch.stack([column.double() for column in columns]).sum(-1).unbind())
