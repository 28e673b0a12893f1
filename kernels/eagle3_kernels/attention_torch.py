"""The merge of own keys into flash attention in plain torch, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def merge(
    query: Tensor, block: Tensor, block_lse: Tensor, own_keys: Sequence[Tensor], own_values: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Output [batch, heads, rows, size] and log-sum-exp [batch, heads, rows] over the causal block and the own keys."""
    scale = query.shape[-1] ** -0.5
    queries = _grouped(_wide(query), own_keys[0])
    scores = torch.stack([(queries * key.unsqueeze(2)).sum(-1).flatten(1, 2) * scale for key in own_keys], -1)
    lse = torch.logaddexp(block_lse, scores.logsumexp(-1))
    output = _wide(block) * (block_lse - lse).exp_()[..., None]
    grouped = _grouped(output, own_keys[0])
    for step, value in enumerate(own_values):
        grouped += _grouped((scores[..., step] - lse).exp_()[..., None], value) * value.unsqueeze(2)
    return output.to(query.dtype), lse


def spread(
    grad: Tensor,
    query: Tensor,
    output: Tensor,
    lse: Tensor,
    own_keys: Sequence[Tensor],
    own_values: Sequence[Tensor],
    d_query: Tensor,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """``d_query`` with the own keys' part added, and the gradients of own keys and values."""
    scale = query.shape[-1] ** -0.5
    queries, wide = (_grouped(_wide(entry), own_keys[0]) for entry in (query, grad))
    constant = (_wide(grad) * output).sum(-1)
    total = _wide(d_query)
    changed = _grouped(total, own_keys[0])
    d_keys, d_values = [], []
    for key, value in zip(own_keys, own_values, strict=True):
        keys, values = key.unsqueeze(2), value.unsqueeze(2)
        weight = ((queries * keys).sum(-1).flatten(1, 2) * scale - lse).exp_()
        slope = weight * ((wide * values).sum(-1).flatten(1, 2) - constant) * scale
        slopes, weights = (_grouped(entry[..., None], key) for entry in (slope, weight))
        changed += slopes * keys
        d_keys.append((slopes * queries).sum(2).to(key.dtype))
        d_values.append((weights * wide).sum(2).to(value.dtype))
    return total.to(query.dtype), d_keys, d_values


def _grouped(states: Tensor, key: Tensor) -> Tensor:
    """[batch, heads, ...] to [batch, key heads, heads of each, ...], a view."""
    return states.unflatten(1, (key.shape[1], -1))


def _wide(values: Tensor) -> Tensor:
    """float32, or float64 where the caller computes in it."""
    return values if values.dtype == torch.float64 else values.float()
