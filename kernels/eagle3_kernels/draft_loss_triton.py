"""The row pass of `draft_loss` as a Triton kernel: one program for a row at a step."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048
"""Logits at a time: a thread holds 8 of each row it reads."""
OPTIONS = {"num_warps": 8, "enable_fp_fusion": True}
"""How both kernels are built; the fusion of products and sums is no default that can be relied on."""


@triton.jit
def _logits(place, ids, size, scale, softcap, CAPPED: tl.constexpr):
    """Teacher logits as the target gives them out, float32, minus infinity past the end."""
    logits = tl.load(place + ids, mask=ids < size, other=-float("inf")).to(tl.float32) * scale
    if CAPPED:
        # tanh through exp: with x at minus infinity it is -1, so the end is masked again.
        logits = softcap * (1.0 - 2.0 / (tl.exp(2.0 * logits / softcap) + 1.0))
        logits = tl.where(ids < size, logits, -float("inf"))
    return logits


@triton.jit
def teacher_rows(target, lse, entropy, size, scale, softcap, CAPPED: tl.constexpr, BLOCK: tl.constexpr):
    """Log-sum-exp of a teacher row and sum p log p."""
    row = tl.program_id(0)
    place = target + row.to(tl.int64) * size
    top, total, expected = -float("inf"), 0.0, 0.0
    for start in range(0, size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        logits = _logits(place, ids, size, scale, softcap, CAPPED)
        peak = tl.maximum(top, tl.max(logits, 0))
        shrink = tl.exp(top - peak)
        weights = tl.exp(logits - peak)
        total = total * shrink + tl.sum(weights, 0)
        expected = expected * shrink + tl.sum(weights * tl.where(ids < size, logits, 0.0), 0)
        top = peak
    tl.store(lse + row, top + tl.log(total))
    tl.store(entropy + row, expected / total - top - tl.log(total))


@triton.jit
def draft_rows(
    logits, target, teacher_lse, teacher_entropy, kept, weight, losses, choices, alphas, rows, size, scale, softcap,
    CAPPED: tl.constexpr, HYBRID: tl.constexpr, GRADIENT: tl.constexpr, DECAY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loss, choice and alpha of one row at one step; its logits become the weighted gradient of its loss."""
    row, step = tl.program_id(0), tl.program_id(1)
    here = step * rows + row
    draft, goal = logits + here.to(tl.int64) * size, target + row.to(tl.int64) * size
    goal_lse, share_kept = tl.load(teacher_lse + row), tl.load(kept + row)
    top, total, expected, choice = -float("inf"), 0.0, 0.0, 0
    for start in range(0, size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        drafted = tl.load(draft + ids, mask=ids < size, other=-float("inf")).to(tl.float32)
        goals = tl.exp(_logits(goal, ids, size, scale, softcap, CAPPED) - goal_lse)
        expected += tl.sum(goals * tl.where(ids < size, drafted, 0.0), 0)
        block_top = tl.max(drafted, 0)
        choice = tl.where(block_top > top, start + tl.argmax(drafted, 0), choice)
        peak = tl.maximum(top, block_top)
        total = total * tl.exp(top - peak) + tl.sum(tl.exp(drafted - peak), 0)
        top = peak
    lse = top + tl.log(total)
    row_weight = tl.load(weight + here)
    alpha, below = 0.0, 0.0
    for start in range(0, size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        drafted = tl.exp(tl.load(draft + ids, mask=ids < size, other=-float("inf")).to(tl.float32) - lse)
        goals = tl.exp(_logits(goal, ids, size, scale, softcap, CAPPED) - goal_lse)
        alpha += tl.sum(tl.minimum(drafted, goals * share_kept), 0)
        if HYBRID:
            below += tl.sum(tl.where(drafted < goals * share_kept, drafted, 0.0), 0)
        elif GRADIENT:
            tl.store(draft + ids, ((drafted - goals) * row_weight).to(logits.dtype.element_ty), mask=ids < size)
    loss = tl.load(teacher_entropy + row) - expected + lse
    if HYBRID:
        share = tl.exp(-DECAY * alpha)
        loss = share * loss + (1.0 - share) * (1.0 - alpha)
        if GRADIENT:
            for start in range(0, size, BLOCK):
                ids = start + tl.arange(0, BLOCK)
                drafted = tl.exp(tl.load(draft + ids, mask=ids < size, other=-float("inf")).to(tl.float32) - lse)
                goals = tl.exp(_logits(goal, ids, size, scale, softcap, CAPPED) - goal_lse)
                change = tl.where(drafted < goals * share_kept, drafted, 0.0) - drafted * below
                gradient = (share * (drafted - goals) - (1.0 - share) * change) * row_weight
                tl.store(draft + ids, gradient.to(logits.dtype.element_ty), mask=ids < size)
    tl.store(losses + here, loss)
    tl.store(choices + here, choice)
    tl.store(alphas + here, alpha)


def rows(
    logits: Tensor,
    target: Tensor,
    kept: Tensor,
    weight: Tensor,
    *,
    scale: float,
    softcap: float | None,
    decay: float | None,
    gradient: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, choices and alphas [K, C]; arguments as in `eagle3_kernels.draft_loss`'s own row pass."""
    steps, count, size = logits.shape
    lse, entropy = (torch.empty(count, dtype=torch.float32, device=logits.device) for _ in range(2))
    losses, alphas = (torch.empty(steps, count, dtype=torch.float32, device=logits.device) for _ in range(2))
    choices = torch.empty(steps, count, dtype=torch.int64, device=logits.device)
    shared = {"CAPPED": softcap is not None, "BLOCK": BLOCK, **OPTIONS}
    shape = (size, scale, softcap or 1.0)
    teacher_rows[(count,)](target, lse, entropy, *shape, **shared)
    draft_rows[(count, steps)](
        logits, target, lse, entropy, kept, weight, losses, choices, alphas, count, *shape,
        HYBRID=decay is not None, GRADIENT=gradient, DECAY=decay or 0.0, **shared,
    )  # fmt: skip
    return losses, choices, alphas
