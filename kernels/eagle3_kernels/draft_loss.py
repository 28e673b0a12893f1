"""Soft-label loss of the drafter's head, stacked over the steps of the training-time test.

Row m of step k predicts what row m + k predicts at step 0, so both share one teacher distribution. All steps are
therefore done together, a chunk of teacher rows at a time: one teacher pass, one product with the head, and the
gradients at once. Logits are never held for more than a chunk, whatever the number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LOSSES = ("kl", "lk_hybrid")
_LK_DECAY = 3.0
"""Decay eta of the hybrid loss's weight, exp(-eta * alpha) (arXiv 2602.23881)."""


@dataclass(frozen=True)
class Teacher:
    """Target distributions over the draft vocabulary.

    ``hidden`` [M, Ht] is the target's last hidden state after its final norm, row m being the teacher of row m at step
    0; ``head`` [DV, Ht] holds the target's head rows that the draft vocabulary keeps. ``scale`` multiplies the logits
    and ``softcap`` c bounds them by c * tanh(logits / c), where the target does so.
    """

    hidden: Tensor
    head: Tensor
    scale: float = 1.0
    softcap: float | None = None

    def logits(self, rows: slice) -> Tensor:
        """Logits [rows, DV] in at least float32."""
        return finish_logits(self.hidden[rows] @ self.head.T, self.scale, self.softcap)


def finish_logits(logits: Tensor, scale: float, softcap: float | None) -> Tensor:
    """A target's own last touch on its logits, in at least float32."""
    logits = _wide(logits)
    if scale != 1.0:
        logits = logits * scale
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def draft_loss(
    hidden: Tensor, head: Tensor, teacher: Teacher, weights: Tensor, *, kind: str = "kl", chunk: int = 64
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted sum of the rows' losses, the losses themselves, and the drafted ids.

    ``hidden`` [K, M, H] is the drafter's normed output, ``head`` [DV, H] its head, ``weights`` [K, M] the weight of
    every row (0: not used). Returns (scalar with gradient, losses [K, M], choices [K, M] int64); losses and
    choices of unused rows are 0. Row losses, q the drafter's and p the teacher's distribution, both over the draft
    vocabulary: ``kl`` = sum p (log p - log q); ``lk_hybrid`` = w kl + (1 - w) (1 - alpha), alpha = sum min(p, q),
    w = exp(-3 alpha) held constant. ``chunk`` is the number of teacher rows at a time.
    """
    return _StackedLoss.apply(hidden, head, teacher, weights, kind, chunk)


def draft_loss_reference(
    hidden: Tensor, head: Tensor, teacher: Teacher, weights: Tensor, *, kind: str = "kl"
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by its definition, through autograd, with all logits in memory."""
    steps, rows = weights.shape
    losses, choices = [], []
    target = torch.log_softmax(teacher.logits(slice(None)), -1)
    for step in range(steps):
        draft = torch.log_softmax(_wide(hidden[step, : rows - step] @ head.T), -1)
        goal = target[step:]
        loss = (goal.exp() * (goal - draft)).sum(-1)
        if kind == "lk_hybrid":
            alpha = torch.minimum(goal.exp(), draft.exp()).sum(-1)
            share = torch.exp(-_LK_DECAY * alpha.detach())
            loss = share * loss + (1 - share) * (1 - alpha)
        losses.append(torch.nn.functional.pad(loss, (0, step)))
        choices.append(torch.nn.functional.pad(draft.argmax(-1), (0, step)))
    row_losses = torch.stack(losses)
    used = weights > 0
    return (row_losses * weights).sum(), (row_losses * used).detach(), torch.stack(choices) * used


class _StackedLoss(torch.autograd.Function):
    """Gradients are made while the logits of a chunk are at hand; backward only scales them."""

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, head: Tensor, teacher: Teacher, weights: Tensor, kind: str, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        if kind not in LOSSES:
            raise ValueError(f"unknown loss {kind!r}, expected one of {LOSSES}")
        aligned, weight = _align(hidden, 1), _align(_wide(weights), 1)
        losses = torch.zeros_like(weight)
        choices = torch.zeros(weight.shape, dtype=torch.int64, device=weight.device)
        d_aligned = torch.empty_like(aligned)
        d_head = torch.zeros_like(head, dtype=weight.dtype) if head.requires_grad else None
        for start in range(0, weight.shape[1], chunk):
            rows = slice(start, start + chunk)
            piece = aligned[:, rows].flatten(0, 1)
            logits = _wide(piece @ head.T).view(len(weight), -1, len(head))
            losses[:, rows], choices[:, rows], d_logits = _rows(logits, teacher.logits(rows), weight[:, rows], kind)
            d_logits = d_logits.flatten(0, 1).to(head.dtype)
            d_aligned[:, rows] = (d_logits @ head).view(len(weight), -1, head.shape[1])
            if d_head is not None:
                d_head += d_logits.T @ piece
        context.save_for_backward(_align(d_aligned, -1), d_head)
        context.head_dtype = head.dtype
        used = weights > 0
        losses, choices = _align(losses, -1) * used, _align(choices, -1) * used
        context.mark_non_differentiable(losses, choices)
        return (losses * weights).sum(), losses, choices

    @staticmethod
    def backward(context: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_head = context.saved_tensors
        d_head = None if d_head is None else (d_head * grad).to(context.head_dtype)
        return d_hidden * grad.to(d_hidden.dtype), d_head, None, None, None, None


def _wide(values: Tensor) -> Tensor:
    """float32, or float64 where the caller computes in it."""
    return values if values.dtype == torch.float64 else values.float()


def _align(values: Tensor, direction: int) -> Tensor:
    """Shift step k of [K, M, ...] by k rows, zeros coming in: forwards so that it meets its teacher row, or back."""
    shifted = torch.zeros_like(values)
    rows = values.shape[1]
    for step in range(len(values)):
        here, there = slice(0, max(rows - step, 0)), slice(step, rows)
        if direction > 0:
            shifted[step, there] = values[step, here]
        else:
            shifted[step, here] = values[step, there]
    return shifted


def _rows(logits: Tensor, target: Tensor, weight: Tensor, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, choices and weighted logit gradients of a chunk; ``logits`` [K, C, DV] is overwritten."""
    goal_log = torch.log_softmax(target, -1)
    goal = goal_log.exp()
    entropy = (goal * goal_log).sum(-1)
    top, choices = logits.max(-1)
    # The teacher's share of the logits, before they are turned into probabilities in place.
    expected = torch.einsum("cv,kcv->kc", goal, logits)
    draft = logits.sub_(top[..., None]).exp_()
    total = draft.sum(-1)
    draft /= total[..., None]
    losses = entropy - expected + top + total.log()
    if kind == "kl":
        return losses, choices, draft.sub_(goal).mul_(weight[..., None])
    overlap = torch.minimum(draft, goal)
    alpha = overlap.sum(-1)
    below = torch.where(draft < goal, draft, 0.0)
    share = torch.exp(-_LK_DECAY * alpha)
    d_alpha = below - draft * below.sum(-1, keepdim=True)
    gradient = share[..., None] * (draft - goal) - (1 - share)[..., None] * d_alpha
    return share * losses + (1 - share) * (1 - alpha), choices, gradient.mul_(weight[..., None])
