"""Attention of the training-time test: a causal block shared by all steps plus one key per own row and earlier step.

Query (row j, step k) sees the step-0 keys of rows <= j of its document and the keys that its own row made at steps
1..k: what an autoregressive draft that starts at row j would see (EAGLE-3, arXiv 2503.01840). The causal block is done
by a flash kernel, the few own keys are folded in through the log-sum-exp, so no score matrix is ever held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

PLAIN_ROWS = 256
"""Documents up to this long are done by the definition: two batched products beat the flash kernel there (CPU, bf16:
63 against 137 ms forward and backward at 15 documents of 184 rows, level at 512)."""

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def ttt_attention(
    query: Tensor, key: Tensor, value: Tensor, own_keys: Sequence[Tensor], own_values: Sequence[Tensor]
) -> Tensor:
    """Attention output [documents, heads, rows, head size] of one step.

    ``query``, ``key`` and ``value`` have that shape too; ``key`` and ``value`` are step 0's, causal within a document.
    ``own_keys`` and ``own_values`` hold one such tensor for each of the steps 1..k; row j meets entry j only.
    Documents are padded at the end: a causal row never sees what comes after it.
    """
    if query.device.type != "cpu" or query.shape[-2] <= PLAIN_ROWS:
        return ttt_attention_reference(query, key, value, own_keys, own_values)
    return merged_attention(query, key, value, own_keys, own_values)


def merged_attention(
    query: Tensor, key: Tensor, value: Tensor, own_keys: Sequence[Tensor], own_values: Sequence[Tensor]
) -> Tensor:
    """The same by flash attention and log-sum-exp merge, on a CPU; memory grows with rows, not with rows squared."""
    return _MergedAttention.apply(query, key, value, *own_keys, *own_values)


def ttt_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, own_keys: Sequence[Tensor], own_values: Sequence[Tensor]
) -> Tensor:
    """The same by its definition: all scores at once, one softmax. Memory grows with rows squared."""
    rows, scale = query.shape[-2], query.shape[-1] ** -0.5
    future = torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu(1)
    scores = [(query @ key.transpose(-1, -2) * scale).masked_fill(future, float("-inf"))]
    scores += [(query * own).sum(-1, keepdim=True) * scale for own in own_keys]
    weights = torch.softmax(torch.cat(scores, -1), -1)
    output = weights[..., :rows] @ value
    for step, own in enumerate(own_values):
        output = output + weights[..., rows + step, None] * own
    return output


class _MergedAttention(torch.autograd.Function):
    """Flash attention over the causal block, own keys merged by log-sum-exp.

    Backward is exact: with the merged output and the merged log-sum-exp L the stock flash backward gives the block's
    part of every gradient, because its weights are exp(score - L) and its row constant is sum(grad * output). Own keys
    add ds = p (grad . v - row constant).
    """

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, *own: Tensor) -> Tensor:
        scale = query.shape[-1] ** -0.5
        block, block_lse = _flash(query, key, value, 0.0, True)
        output, lse = _wide(block), block_lse
        half = len(own) // 2
        if own:
            scores = torch.stack([(_wide(query) * entry).sum(-1) * scale for entry in own[:half]], -1)
            lse = torch.logaddexp(block_lse, scores.logsumexp(-1))
            output = output * (block_lse - lse).exp_()[..., None]
            for step, entry in enumerate(own[half:]):
                output += (scores[..., step] - lse).exp_()[..., None] * entry
        output = output.to(query.dtype)
        context.save_for_backward(query, key, value, output, lse, *own)
        return output

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, ...]:
        query, key, value, output, lse, *own = context.saved_tensors
        scale = query.shape[-1] ** -0.5
        grad = grad.contiguous()
        d_query, d_key, d_value = _flash_backward(grad, query, key, value, output, lse, 0.0, True)
        if not own:
            return d_query, d_key, d_value
        half = len(own) // 2
        wide = _wide(grad)
        constant = (wide * output).sum(-1)
        d_own_keys, d_own_values = [], []
        d_query = _wide(d_query)
        for own_key, own_value in zip(own[:half], own[half:], strict=True):
            weight = ((_wide(query) * own_key).sum(-1) * scale - lse).exp_()
            d_score = (weight * ((wide * own_value).sum(-1) - constant) * scale)[..., None]
            d_query += d_score * own_key
            d_own_keys.append((d_score * query).to(own_key.dtype))
            d_own_values.append((weight[..., None] * wide).to(own_value.dtype))
        return d_query.to(query.dtype), d_key, d_value, *d_own_keys, *d_own_values


def _wide(values: Tensor) -> Tensor:
    """float32, or float64 where the caller computes in it."""
    return values if values.dtype == torch.float64 else values.float()
