"""The merge of own keys into flash attention in plain torch, forward and backward.

One key head with its query heads is done at a time: its rows stay in a core's own cache over all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def merge(
    query: Tensor, block: Tensor, block_lse: Tensor, own_keys: Sequence[Tensor], own_values: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Output [batch, heads, rows, size] and log-sum-exp [batch, heads, rows] over the causal block and the own keys."""
    output, lse = torch.empty_like(query), torch.empty_like(block_lse)
    for heads, own in _heads(query, own_keys[0]):
        queries = _wide(query[:, heads]) * query.shape[-1] ** -0.5
        scores = torch.stack([(queries * key[:, own]).sum(-1) for key in own_keys], -1)
        lse[:, heads] = torch.logaddexp(block_lse[:, heads], scores.logsumexp(-1))
        merged = _wide(block[:, heads]) * (block_lse[:, heads] - lse[:, heads]).exp_()[..., None]
        weights = scores.sub_(lse[:, heads, :, None]).exp_()
        for step, value in enumerate(own_values):
            merged.addcmul_(weights[..., step, None], _wide(value[:, own]))
        output[:, heads] = merged
    return output, lse


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
    d_keys, d_values = ([torch.empty_like(entry) for entry in group] for group in (own_keys, own_values))
    for heads, own in _heads(query, own_keys[0]):
        queries, pushed, total = (_wide(entry[:, heads]) for entry in (query, grad, d_query))
        constant = (pushed * output[:, heads]).sum(-1)
        for step, (key, value) in enumerate(zip(own_keys, own_values, strict=True)):
            wide = _wide(key[:, own])
            weight = (queries * wide).sum(-1).mul_(scale).sub_(lse[:, heads]).exp_()
            slope = (pushed * value[:, own]).sum(-1).sub_(constant).mul_(weight).mul_(scale)
            total.addcmul_(slope[..., None], wide)
            d_keys[step][:, own] = _over_heads(slope[..., None] * queries)
            d_values[step][:, own] = _over_heads(weight[..., None] * pushed)
        d_query[:, heads] = total
    return d_query, d_keys, d_values


def _heads(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Query heads and the key head that they share."""
    group = query.shape[1] // key.shape[1]
    for head in range(key.shape[1]):
        yield slice(head * group, (head + 1) * group), slice(head, head + 1)


def _over_heads(states: Tensor) -> Tensor:
    """The sum over query heads, their dimension kept."""
    return states if states.shape[1] == 1 else states.sum(1, keepdim=True)


def _wide(values: Tensor) -> Tensor:
    """float32, or float64 where the caller computes in it."""
    return values if values.dtype == torch.float64 else values.float()
