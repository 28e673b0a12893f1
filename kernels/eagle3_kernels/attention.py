"""Attention of the training-time test: a causal block shared by all steps plus one key per own row and earlier step.

Query (row j, step k) sees the step-0 keys of rows <= j of its document and the keys that its own row made at steps
1..k: what an autoregressive draft that starts at row j would see (EAGLE-3, arXiv 2503.01840). On a GPU the
causal block is done by a flash kernel and the few own keys are folded in through the log-sum-exp, so no score matrix is
ever held; a CPU does so for very many queries, and else keeps the softmax's weights (`attention_kept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagle3_kernels import flash
from eagle3_kernels.attention_kept import kept_attention
from eagle3_kernels.dispatch import kernel_path

KEPT_ROWS, KEPT_PAIRS = 1024, 1 << 24
"""Queries, and pairs of a query and a key, up to which a CPU keeps the softmax's weights, two bytes each in bf16 for
every head: that is quicker than the flash kernel, which makes all scores twice (some 85 against 125 ms forward and
backward for 512 queries and 2048 keys, 9 heads on 3 key heads). With 2048 queries at once it is not and holds more."""


def ttt_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own_keys: Sequence[Tensor],
    own_values: Sequence[Tensor],
    *,
    documents: Sequence[int] | None = None,
    key_documents: Sequence[int] | None = None,
    window: int | None = None,
) -> Tensor:
    """Attention output [batch, heads, rows, head size] of one step.

    ``query`` has that shape, ``key`` and ``value`` have it with a divisor of the number of heads; these two are step
    0's and causal. ``own_keys`` and ``own_values`` hold one such tensor for each of the steps 1..k; row j meets entry j
    only. ``documents`` are the lengths of the documents that lie one behind the other in the rows of a single batch
    entry, and do not see each other; without it each batch entry is a document, padded at its end. With a ``window`` a
    row sees the last ``window`` of the step-0 keys, its own among them, and all its own keys.

    Queries may be the last rows of their documents only: ``key`` and ``value`` then have more rows, as many of each
    document as ``key_documents`` says.
    """
    if flash.gpu_takes(query):
        lengths = flash.Lengths(
            tuple(documents or [query.shape[-2]] * query.shape[0]),
            tuple(key_documents or documents or [key.shape[-2]] * key.shape[0]),
        )
        return _MergedAttention.apply(lengths, window, query, key, value, *own_keys, *own_values)
    if documents is None:
        return _documents(query, key, value, own_keys, own_values, window)
    split = [entry.split(list(documents), -2) for entry in (query, *own_keys, *own_values)]
    split[1:1] = [entry.split(list(key_documents or documents), -2) for entry in (key, value)]
    steps = len(own_keys)
    outputs = [
        _documents(queries, keys, values, own[:steps], own[steps:], window)
        for queries, keys, values, *own in zip(*split, strict=True)
    ]
    return torch.cat(outputs, -2)


def _documents(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own_keys: Sequence[Tensor],
    own_values: Sequence[Tensor],
    window: int | None,
) -> Tensor:
    """The same where each batch entry is a document."""
    if query.device.type != "cpu":
        return ttt_attention_reference(query, key, value, own_keys, own_values, window)
    if window is None and query.shape[-2] <= KEPT_ROWS and query.shape[-2] * key.shape[-2] <= KEPT_PAIRS:
        return kept_attention(query, key, value, own_keys, own_values)
    return merged_attention(query, key, value, own_keys, own_values, window)


def merged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own_keys: Sequence[Tensor],
    own_values: Sequence[Tensor],
    window: int | None = None,
) -> Tensor:
    """The same by flash attention and log-sum-exp merge, on a CPU; memory grows with rows, not with rows squared."""
    return _MergedAttention.apply(None, window, query, key, value, *own_keys, *own_values)


def ttt_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own_keys: Sequence[Tensor],
    own_values: Sequence[Tensor],
    window: int | None = None,
) -> Tensor:
    """The same by its definition: all scores at once, one softmax. Memory grows with rows squared."""
    rows, scale, group = key.shape[-2], query.shape[-1] ** -0.5, query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    earlier = rows - query.shape[-2]
    hidden = torch.ones(query.shape[-2], rows, dtype=torch.bool, device=query.device).triu(1 + earlier)
    if window is not None:
        hidden |= torch.ones_like(hidden).tril(earlier - window)
    scores = [(query @ key.transpose(-1, -2) * scale).masked_fill(hidden, float("-inf"))]
    scores += [(query * own.repeat_interleave(group, 1)).sum(-1, keepdim=True) * scale for own in own_keys]
    weights = torch.softmax(torch.cat(scores, -1), -1)
    output = weights[..., :rows] @ value
    for step, own in enumerate(own_values):
        output = output + weights[..., rows + step, None] * own.repeat_interleave(group, 1)
    return output


class _MergedAttention(torch.autograd.Function):
    """Flash attention over the causal block, own keys merged by log-sum-exp.

    Backward is exact: with the merged output and the merged log-sum-exp L the stock flash backward gives the block's
    part of every gradient, because its weights are exp(score - L) and its row constant is sum(grad * output). Own keys
    add ds = p (grad . v - row constant).
    """

    @staticmethod
    def forward(
        context: Any,
        documents: flash.Lengths | None,
        window: int | None,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *own: Tensor,
    ) -> Tensor:
        if documents is None:
            random: tuple[Tensor, ...] = ()
            output, lse = flash.cpu_forward(query, key, value, window)
        else:
            output, lse, random = flash.gpu_forward(query, key, value, documents, window)
        half = len(own) // 2
        if own:
            output, lse = _path(query).merge(query, output, lse, own[:half], own[half:])
        context.layout = documents, window, len(random)
        context.save_for_backward(query, key, value, output, lse, *random, *own)
        return output

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        documents, window, extras = context.layout
        query, key, value, output, lse, *rest = context.saved_tensors
        random, own = rest[:extras], rest[extras:]
        states = grad.contiguous(), query, key, value, output, lse
        if documents is None:
            d_query, d_key, d_value = flash.cpu_backward(*states, window)
        else:
            d_query, d_key, d_value = flash.gpu_backward(*states, documents, window, random)
        if not own:
            return None, None, d_query, d_key, d_value
        half = len(own) // 2
        spread = _path(query).spread(grad, query, output, lse, own[:half], own[half:], d_query)
        return None, None, spread[0], d_key, d_value, *spread[1], *spread[2]


def _path(query: Tensor) -> Any:
    """The module with `merge` and `spread` for these queries."""
    if kernel_path(query.device).name == "triton":
        from eagle3_kernels import attention_triton

        return attention_triton
    from eagle3_kernels import attention_torch

    return attention_torch
