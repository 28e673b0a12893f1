"""Attention of the training-time test on a CPU that keeps the softmax's weights from forward for backward.

A flash kernel keeps none of them and makes all scores a second time in backward. Where queries are few, as for a part
of a document's rows, their weights are few too: rows times keys for each head, in the products' own dtype. The scores
of query heads that share a key head are made by one product, some rows at a time so that they stay in a core's cache,
and of the keys behind the last of these rows none are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

SCORES_AT_ONCE = 1 << 20
"""Scores that are treated at a time: they stay in a core's own cache from one operation to the next."""
LEAST_ROWS = 16
"""Rows that are treated at a time where there are very many keys: below that the products are slow."""
_ALIGNED = 32
"""Weights of a row take a multiple of so many places, for the products' sake."""


def kept_attention(
    query: Tensor, key: Tensor, value: Tensor, own_keys: Sequence[Tensor], own_values: Sequence[Tensor]
) -> Tensor:
    """What `ttt_attention` gives where each batch entry is a document and there is no window.

    With gradients enabled it holds a weight for each pair of a query and a key before it, in ``query``'s dtype.
    """
    return _KeptAttention.apply(query, key, value, *own_keys, *own_values)


class _KeptAttention(torch.autograd.Function):
    """Softmax over the keys before a query and, in further columns, its row's own keys. As in a plain softmax in 16 bit
    scores and weights are narrow; sums over keys are not."""

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, *own: Tensor) -> Tensor:
        keys, values = key.flatten(0, 1), value.flatten(0, 1)
        queries = _grouped(query * query.shape[-1] ** -0.5, key.shape[1])
        own_keys, own_values = _halves([entry.flatten(0, 1) for entry in own])
        output, kept = torch.empty_like(queries), []
        for head, rows, seen in _tiles(queries, key.shape[2]):
            few = queries[head, rows]
            scores = _met(few, keys[head, :seen], len(own_keys), -torch.inf)
            scores[..., seen - few.shape[1] : seen].masked_fill_(_later(few), -torch.inf)
            for column, entry in enumerate(own_keys, seen):
                torch.sum(few * entry[head, rows, None], -1, out=scores[..., column])
            weights = torch.softmax(scores, -1)
            found = _wide((weights[..., :seen].flatten(1, 2) @ values[head, :seen]).view(few.shape))
            for column, entry in enumerate(own_values, seen):
                found.addcmul_(weights[..., column, None], entry[head, rows, None])
            output[head, rows] = found
            if any(context.needs_input_grad):
                kept.append(weights)
        context.own = len(own)
        context.save_for_backward(queries, key, value, *own, *kept)
        return _ungrouped(output, query)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, key, value, *rest = context.saved_tensors
        own, kept = rest[: context.own], iter(rest[context.own :])
        keys, values = key.flatten(0, 1), value.flatten(0, 1)
        own_keys, own_values = _halves([entry.flatten(0, 1) for entry in own])
        d_own_keys, d_own_values = _halves([torch.empty_like(entry) for entry in (*own_keys, *own_values)])
        pushed, d_queries = _grouped(grad, key.shape[1]), torch.empty_like(queries)
        # Transposed: the long side of the products lies in memory as that of their weights does.
        d_keys, d_values = (torch.zeros_like(_wide(entry.mT)) for entry in (keys, values))
        for head, rows, seen in _tiles(queries, key.shape[2]):
            few, push, weights = queries[head, rows], pushed[head, rows], next(kept)
            slopes = _met(push, values[head, :seen], len(own_keys), 0)
            for column, entry in enumerate(own_values, seen):
                torch.sum(push * entry[head, rows, None], -1, out=slopes[..., column])
            slopes = torch._softmax_backward_data(slopes, weights, -1, slopes.dtype)
            block = slopes[..., :seen].flatten(1, 2)
            d_few = _wide((block @ keys[head, :seen]).view(few.shape))
            wide_few, wide_push = _wide(few), _wide(push)
            for place, (own_key, d_key, d_value) in enumerate(
                zip(own_keys, d_own_keys, d_own_values, strict=True), seen
            ):
                slope = slopes[..., place, None]
                d_few.addcmul_(slope, own_key[head, rows, None])
                d_key[head, rows] = (slope * wide_few).sum(2)
                d_value[head, rows] = (weights[..., place, None] * wide_push).sum(2)
            d_queries[head, rows] = d_few.mul_(key.shape[-1] ** -0.5)
            d_keys[head, :, :seen] += few.flatten(1, 2).mT @ block
            d_values[head, :, :seen] += push.flatten(1, 2).mT @ weights[..., :seen].flatten(1, 2)
        d_own = [entry.view(like.shape) for entry, like in zip((*d_own_keys, *d_own_values), own, strict=True)]
        whole = [entry.mT.to(key.dtype).view(key.shape) for entry in (d_keys, d_values)]
        return _ungrouped(d_queries, grad), *whole, *d_own


def _tiles(queries: Tensor, keys: int) -> Iterator[tuple[slice, slice, int]]:
    """Key heads and rows that are treated together, and how many keys the last of these rows sees."""
    heads, rows, group = queries.shape[:3]
    together = max(1, SCORES_AT_ONCE // (rows * group * keys))
    step = rows if together > 1 else max(LEAST_ROWS, SCORES_AT_ONCE // (group * keys))
    for head in range(0, heads, together):
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            yield slice(head, head + together), slice(start, stop), keys - rows + stop


def _met(few: Tensor, others: Tensor, own: int, rest: float) -> Tensor:
    """Products of rows with the keys or values [heads, keys, size] that they see, [heads, rows, group, columns], with
    further columns for ``own`` ones; ``rest`` stands behind these."""
    seen = others.shape[1]
    made = few.new_empty(*few.shape[:3], -(-(seen + own) // _ALIGNED) * _ALIGNED)
    made[..., seen + own :] = rest
    for states, met, room in zip(few.flatten(1, 2), others, made.flatten(1, 2), strict=True):
        torch.mm(states, met.T, out=room[:, :seen])
    return made


def _later(few: Tensor) -> Tensor:
    """Which of the last keys lie behind a row, [rows, 1, rows]."""
    return torch.ones(few.shape[1], few.shape[1], dtype=torch.bool).triu_(1)[:, None]


def _grouped(states: Tensor, heads: int) -> Tensor:
    """[batch, query heads, rows, size] as [batch * key heads, rows, query heads of each, size]."""
    return states.unflatten(1, (heads, -1)).transpose(2, 3).flatten(0, 1).contiguous()


def _ungrouped(states: Tensor, like: Tensor) -> Tensor:
    """The way back of `_grouped`."""
    return states.unflatten(0, (len(like), -1)).transpose(2, 3).flatten(1, 2)


def _halves(entries: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    return entries[: len(entries) // 2], entries[len(entries) // 2 :]


def _wide(values: Tensor) -> Tensor:
    """float32, or float64 where the caller computes in it."""
    return values if values.dtype == torch.float64 else values.float()
