"""Soft-label loss of the drafter's head, stacked over the steps of the training-time test.

Row m of step k predicts what row m + k predicts at step 0, so both share one teacher distribution. All steps are
therefore done together, a chunk of teacher rows at a time: one teacher pass, one product with the head, one pass over
the logits for losses, statistics and gradients, and the two products back. Logits are never held for more than a
chunk, whatever the number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagle3_kernels.dispatch import kernel_path

LOSSES = ("kl", "lk_hybrid")
_LK_DECAY = 3.0
"""Decay eta of the hybrid loss's weight, exp(-eta * alpha) (arXiv 2602.23881)."""
CHUNK_ROWS = {"torch": 128, "triton": 512}
"""Teacher rows at a time: few enough for small memory, enough for products at full speed."""
_BLOCK = 128
"""Logits of a row among which the largest one is looked for."""
LOGITS_AT_ONCE = 1 << 18
"""Logits that plain torch treats at a time: they stay in a core's own cache from one operation to the next."""


@dataclass(frozen=True)
class Teacher:
    """Target distributions over the draft vocabulary.

    ``hidden`` [M, Ht] is the target's last hidden state after its final norm, row m being the teacher of row m at step
    0 (there may be more of them than rows that draft, for the later steps of the last ones); ``head`` [DV, Ht] holds
    the target's head rows that the draft vocabulary keeps. ``scale`` multiplies the logits and ``softcap`` c bounds
    them by c * tanh(logits / c), where the target does so. ``kept`` [M], where it is known, is the share of each row's
    whole distribution that lies in the draft vocabulary.
    """

    hidden: Tensor
    head: Tensor
    scale: float = 1.0
    softcap: float | None = None
    kept: Tensor | None = None

    def logits(self, rows: slice) -> Tensor:
        """Logits [rows, DV] in at least float32."""
        return finish_logits(self.hidden[rows] @ self.head.T, self.scale, self.softcap)


def finish_logits(logits: Tensor, scale: float, softcap: float | None) -> Tensor:
    """A target's own last touch on its logits, in at least float32."""
    logits = _wide(logits)
    if scale != 1.0:
        logits = logits * scale
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


class DraftLoss(NamedTuple):
    """``total``, the weighted sum of the rows' losses, has the gradient; by row and step, [K, M]: ``losses``, the ids
    that are drafted (``choices``, int64) and ``alphas``, the probability that a sampled draft is accepted. All are 0
    where a row is not used."""

    total: Tensor
    losses: Tensor
    choices: Tensor
    alphas: Tensor


def draft_loss(
    hidden: Tensor, head: Tensor, teacher: Teacher, weights: Tensor, *, kind: str = "kl", chunk: int | None = None
) -> DraftLoss:
    """Losses and statistics of the rows at every step.

    ``hidden`` [K, M, H] is the drafter's normed output, ``head`` [DV, H] its head, ``weights`` [K, M] the weight of
    every row (0: not used). With q the drafter's and p the teacher's distribution over the draft vocabulary, and r the
    teacher's over its own vocabulary (r = kept * p; p itself where ``kept`` is not given): alpha = sum min(r, q);
    ``kl`` = sum p (log p - log q); ``lk_hybrid`` = w kl + (1 - w) (1 - alpha) with w = exp(-3 alpha) held constant.
    ``chunk`` is the number of teacher rows at a time. Raises ValueError for another ``kind``.
    """
    return DraftLoss(*_StackedLoss.apply(hidden, head, teacher, weights, kind, chunk))


def draft_loss_reference(
    hidden: Tensor, head: Tensor, teacher: Teacher, weights: Tensor, *, kind: str = "kl"
) -> DraftLoss:
    """The same by its definition, through autograd, with all logits in memory."""
    steps, rows = weights.shape
    columns = []
    target = torch.log_softmax(teacher.logits(slice(None)), -1)
    kept = torch.ones_like(target[:, 0]) if teacher.kept is None else teacher.kept
    for step in range(steps):
        goal = target[step : step + rows]
        draft = torch.log_softmax(_wide(hidden[step, : len(goal)] @ head.T), -1)
        loss = (goal.exp() * (goal - draft)).sum(-1)
        alpha = torch.minimum(goal.exp() * kept[step : step + rows, None], draft.exp()).sum(-1)
        if kind == "lk_hybrid":
            share = torch.exp(-_LK_DECAY * alpha.detach())
            loss = share * loss + (1 - share) * (1 - alpha)
        entries = (loss, draft.argmax(-1), alpha.detach())
        columns.append([torch.nn.functional.pad(entry, (0, rows - len(goal))) for entry in entries])
    losses, choices, alphas = (torch.stack(column) for column in zip(*columns, strict=True))
    used = weights > 0
    return DraftLoss((losses * weights).sum(), (losses * used).detach(), choices * used, alphas * used)


class _StackedLoss(torch.autograd.Function):
    """Gradients are made while the logits of a chunk are at hand; backward only scales them."""

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, head: Tensor, teacher: Teacher, weights: Tensor, kind: str, chunk: int | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if kind not in LOSSES:
            raise ValueError(f"unknown loss {kind!r}, expected one of {LOSSES}")
        d_hidden = torch.zeros_like(hidden) if any(context.needs_input_grad[:2]) else None
        d_head = torch.zeros_like(head, dtype=_wide(head[:0]).dtype) if context.needs_input_grad[1] else None
        outcome = _chunks(hidden, head, teacher, weights, kind, chunk, d_hidden, d_head)
        context.save_for_backward(d_hidden, d_head)
        context.head_dtype = head.dtype
        context.mark_non_differentiable(*outcome[1:])
        return outcome

    @staticmethod
    def backward(context: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_head = context.saved_tensors
        d_head = None if d_head is None else (d_head * grad).to(context.head_dtype)
        return d_hidden * grad.to(d_hidden.dtype), d_head, None, None, None, None


def _chunks(
    hidden: Tensor,
    head: Tensor,
    teacher: Teacher,
    weights: Tensor,
    kind: str,
    chunk: int | None,
    d_hidden: Tensor | None,
    d_head: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The outputs of `draft_loss`; gradients go to ``d_hidden`` and are added to ``d_head``, where these are given."""
    path, count = kernel_path(hidden.device).name, len(teacher.hidden)
    # As many chunks as make them about that long, all alike: a short last one costs what a whole one does.
    chunk = chunk or -(-count // max(1, round(count / CHUNK_ROWS[path])))
    weight = _wide(weights)
    losses, alphas = torch.zeros_like(weight), torch.zeros_like(weight)
    choices = torch.zeros(weight.shape, dtype=torch.int64, device=weight.device)
    for start in range(0, count, chunk):
        rows = slice(start, min(start + chunk, count))
        piece = _gather(hidden, rows)
        shape = (*piece.shape[:2], len(head))
        logits = (piece.flatten(0, 1) @ head.T).view(shape)
        found = _rows(logits, teacher, rows, _gather(weight, rows), kind, d_hidden is not None, path)
        for entry, values in zip((losses, choices, alphas), found, strict=True):
            _scatter(entry, values, rows)
        if d_hidden is not None:
            d_logits = logits.flatten(0, 1)
            _scatter(d_hidden, (d_logits @ head).view(piece.shape), rows)
            if d_head is not None:
                d_head += d_logits.T @ piece.flatten(0, 1)
    used = weights > 0
    losses *= used
    return (losses * weight).sum(), losses, choices * used, alphas * used


def _wide(values: Tensor) -> Tensor:
    """float32, or float64 where the caller computes in it."""
    return values if values.dtype == torch.float64 else values.float()


def _meetings(steps: int, count: int, rows: slice) -> Iterator[tuple[int, slice, slice]]:
    """For each step, which of its ``count`` rows meet these teacher rows (row m meets teacher row m + step), and their
    places among them."""
    for step in range(steps):
        first, stop = max(rows.start - step, 0), min(rows.stop - step, count)
        if first < stop:
            yield step, slice(first, stop), slice(first + step - rows.start, stop + step - rows.start)


def _gather(values: Tensor, rows: slice) -> Tensor:
    """What of ``values`` [K, M, ...] meets the teacher rows, [K, C, ...]; zeros where no row does."""
    piece = values.new_zeros(len(values), rows.stop - rows.start, *values.shape[2:])
    for step, own, place in _meetings(len(values), values.shape[1], rows):
        piece[step, place] = values[step, own]
    return piece


def _scatter(values: Tensor, piece: Tensor, rows: slice) -> None:
    """The way back of `_gather`."""
    for step, own, place in _meetings(len(values), values.shape[1], rows):
        values[step, own] = piece[step, place]


def _rows(
    logits: Tensor, teacher: Teacher, rows: slice, weight: Tensor, kind: str, gradient: bool, path: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, choices and alphas [K, C] of a chunk; its logits [K, C, DV] become their weighted gradient."""
    target = teacher.hidden[rows] @ teacher.head.T
    kept = torch.ones_like(weight[0]) if teacher.kept is None else _wide(teacher.kept[rows])
    if path == "triton":
        from eagle3_kernels import draft_loss_triton

        decay = _LK_DECAY if kind == "lk_hybrid" else None
        # Weights of several steps come in float64, in which a GPU would then do the whole row.
        return draft_loss_triton.rows(
            logits,
            target,
            kept.float(),
            weight.float(),
            scale=teacher.scale,
            softcap=teacher.softcap,
            decay=decay,
            gradient=gradient,
        )
    losses, alphas = torch.empty_like(weight), torch.empty_like(weight)
    choices = torch.empty(weight.shape, dtype=torch.int64, device=weight.device)
    tile = max(1, LOGITS_AT_ONCE // (logits.shape[0] * logits.shape[2]))
    for start in range(0, logits.shape[1], tile):
        part = slice(start, start + tile)
        goal_log = torch.log_softmax(finish_logits(target[part], teacher.scale, teacher.softcap), -1)
        losses[:, part], choices[:, part], alphas[:, part] = _tile(
            logits[:, part], goal_log, kept[part], weight[:, part], kind, gradient
        )
    return losses, choices, alphas


def _top(values: Tensor) -> tuple[Tensor, Tensor]:
    """Maximum over the last dimension and its first place. Torch's own search for the place is not vectorised, so only
    one block of each row is searched."""
    if values.shape[-1] % _BLOCK:
        top, places = values.max(-1)
        return top, places
    blocks = values.unflatten(-1, (-1, _BLOCK))
    top, block = blocks.amax(-1).max(-1)
    best = blocks.take_along_dim(block[..., None, None], -2).squeeze(-2)
    return top, block * _BLOCK + best.max(-1).indices


def _tile(
    logits: Tensor, goal_log: Tensor, kept: Tensor, weight: Tensor, kind: str, gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The row pass in plain torch for a few teacher rows, ``goal_log`` [t, DV] being their log-probabilities."""
    wide, goal = _wide(logits), goal_log.exp()
    draft = torch.softmax(wide, -1)
    top, choices = _top(draft)
    reach = goal * kept[:, None]
    overlap = torch.minimum(draft, reach)
    alphas = overlap.sum(-1)
    # Cross entropy and entropy: with the top logit and its probability no further pass is needed for log-sum-exp.
    lse = wide.gather(-1, choices[..., None]).squeeze(-1) - top.log()
    losses = lse - torch.einsum("cv,kcv->kc", goal, wide) + torch.einsum("cv,cv->c", goal, goal_log)
    if kind == "lk_hybrid":
        share = torch.exp(-_LK_DECAY * alphas)
        losses = share * losses + (1 - share) * (1 - alphas)
    if gradient and kind == "kl":
        torch.mul(draft.sub_(goal), weight[..., None], out=logits)
    elif gradient:
        below = draft * (draft < reach)
        change = torch.addcmul(below, draft, below.sum(-1, keepdim=True), value=-1)
        slope = draft.sub_(goal).mul_(share[..., None]).sub_(change.mul_((1 - share)[..., None]))
        torch.mul(slope, weight[..., None], out=logits)
    return losses, choices, alphas
