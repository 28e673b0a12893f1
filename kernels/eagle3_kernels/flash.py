"""Torch's own flash kernels with what the merge of own keys needs of them: the log-sum-exp, and a backward that takes
another output and another log-sum-exp than its forward gave.

Tensors are [batch, heads, rows, head size]; keys and values may have fewer heads than queries, a divisor of their
number. Row j sees the rows up to itself, with a window of W rows only the last W of them. Where there are fewer queries
than keys they are those of the last rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

WINDOW_ROWS = 256
"""Query rows at a time under a sliding window on a CPU, whose flash kernel knows no windows but takes a mask."""

_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_cpu_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_gpu = torch.ops.aten._flash_attention_forward
_gpu_backward = torch.ops.aten._flash_attention_backward


@dataclass(frozen=True)
class Lengths:
    """Rows of each document, over all rows of all batch entries: those with a query, and those with a key."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]


def gpu_takes(query: Tensor) -> bool:
    """Whether the GPU kernel can do these queries: 16 bit, heads of a multiple of 8 up to 256, Ampere or newer."""
    return (
        query.device.type == "cuda"
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[-1] % 8 == 0
        and query.shape[-1] <= 256
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


def cpu_forward(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp [batch, heads, rows] of one document per batch entry."""
    earlier = key.shape[-2] - query.shape[-2]
    if window is None or window >= key.shape[-2]:
        output, lse = _cpu(query, key[:, :, earlier:], value[:, :, earlier:], 0.0, True)
        if not earlier:
            return output, lse
        # The kernel's causal mask begins at the first key, so the keys before the first query are a block of their own.
        before, before_lse = _cpu(query, key[:, :, :earlier], value[:, :, :earlier], 0.0, False)
        whole = torch.logaddexp(lse, before_lse)
        shares = [(part - whole).exp()[..., None] for part in (lse, before_lse)]
        return (output * shares[0] + before * shares[1]).to(query.dtype), whole
    pieces = [
        _cpu(query[:, :, rows], key[:, :, seen], value[:, :, seen], 0.0, False, attn_mask=mask)
        for rows, seen, mask in _windows(query, earlier, window)
    ]
    return torch.cat([output for output, _ in pieces], -2), torch.cat([lse for _, lse in pieces], -1)


def cpu_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, window: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value for the causal block's part of ``output``."""
    earlier = key.shape[-2] - query.shape[-2]
    if window is None or window >= key.shape[-2]:
        parts = [
            _cpu_backward(grad, query, key[:, :, rows], value[:, :, rows], output, lse, 0.0, causal)
            for rows, causal in ((slice(earlier), False), (slice(earlier, None), True))
            if causal or earlier
        ]
        if not earlier:
            return parts[0]
        before, last = parts
        return before[0].add_(last[0]), torch.cat([before[1], last[1]], -2), torch.cat([before[2], last[2]], -2)
    d_query, d_key, d_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
    for rows, seen, mask in _windows(query, earlier, window):
        states = [entry[:, :, rows].contiguous() for entry in (output, lse)]
        own, keys, values = query[:, :, rows], key[:, :, seen], value[:, :, seen]
        parts = _cpu_backward(grad[:, :, rows].contiguous(), own, keys, values, *states, 0.0, False, attn_mask=mask)
        d_query[:, :, rows] = parts[0]
        d_key[:, :, seen] += parts[1]
        d_value[:, :, seen] += parts[2]
    return d_query, d_key, d_value


def _windows(query: Tensor, earlier: int, window: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Query rows, the keys that any of them sees, and the mask between the two; ``earlier`` rows have keys only."""
    count = query.shape[-2]
    for start in range(0, count, WINDOW_ROWS):
        stop, first = min(start + WINDOW_ROWS, count), max(0, earlier + start - window + 1)
        distance = torch.arange(earlier + start, earlier + stop)[:, None] - torch.arange(first, earlier + stop)
        mask = torch.zeros(distance.shape, dtype=query.dtype)
        yield (
            slice(start, stop),
            slice(first, earlier + stop),
            mask.masked_fill_((distance < 0) | (distance >= window), -torch.inf),
        )


def gpu_forward(
    query: Tensor, key: Tensor, value: Tensor, documents: Lengths, window: int | None
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Output, log-sum-exp and what backward wants back. The kernel aligns the causal mask with the last key."""
    packed = [_packed(entry) for entry in (query, key, value)]
    output, lse, seed, offset, _ = _gpu(
        *packed, *_bounds(documents, query.device), 0.0, True, False,
        window_size_left=_left(window), window_size_right=0,
    )  # fmt: skip
    return _unpacked(output, query), lse.unflatten(1, (len(query), -1)).transpose(0, 1), (seed, offset)


def gpu_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    documents: Lengths,
    window: int | None,
    random: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value for the causal block's part of ``output``."""
    packed = [_packed(entry) for entry in (grad, query, key, value, output)]
    lse = lse.transpose(0, 1).flatten(1).contiguous()
    gradients = _gpu_backward(
        *packed, lse, *_bounds(documents, query.device), 0.0, True, *random,
        window_size_left=_left(window), window_size_right=0,
    )  # fmt: skip
    d_query, d_key, d_value = (_unpacked(gradient, query) for gradient in gradients)
    return d_query, d_key, d_value


def _bounds(documents: Lengths, device: torch.device) -> tuple[Tensor, Tensor, int, int]:
    """Ends of the documents among queries and among keys, and the longest of each."""
    ends = [_ends(lengths, device) for lengths in (documents.queries, documents.keys)]
    return ends[0], ends[1], max(documents.queries), max(documents.keys)


def _ends(documents: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(documents)], dtype=torch.int32).to(device, non_blocking=True)


def _left(window: int | None) -> int:
    """Rows to the left of its own that a row sees; the kernel's word for all of them is -1."""
    return -1 if window is None else window - 1


def _packed(states: Tensor) -> Tensor:
    """[batch, heads, rows, size] to [all rows, heads, size]."""
    return states.transpose(1, 2).flatten(0, 1)


def _unpacked(states: Tensor, like: Tensor) -> Tensor:
    return states.unflatten(0, (len(like), -1)).transpose(1, 2)
