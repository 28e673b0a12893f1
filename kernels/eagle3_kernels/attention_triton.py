"""The merge of own keys into flash attention as Triton kernels, forward and backward: one program for a block of rows
and a key head, whose query heads it does one after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 512
"""Values of a block of rows, all of one head: more would not fit the registers."""
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}
"""How both kernels are built; the fusion of products and sums is no default that can be relied on."""


@triton.jit
def _load(base, row, head, HEADS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, rows):
    """A block of rows of one head out of [rows, heads, size], float32."""
    column = tl.arange(0, WIDTH)
    place = (row.to(tl.int64) * HEADS + head)[:, None] * SIZE + column[None, :]
    return tl.load(base + place, mask=(row < rows)[:, None] & (column < SIZE)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _store(base, values, row, head, HEADS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, rows):
    column = tl.arange(0, WIDTH)
    place = (row.to(tl.int64) * HEADS + head)[:, None] * SIZE + column[None, :]
    mask = (row < rows)[:, None] & (column < SIZE)[None, :]
    tl.store(base + place, values.to(base.dtype.element_ty), mask=mask)


@triton.jit
def merge_rows(
    query, block, block_lse, own_keys, own_values, output, lse, rows, scale,
    STEPS: tl.constexpr, GROUP: tl.constexpr, KEY_HEADS: tl.constexpr,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The softmax of the causal block continued over the rows' own keys."""
    row, key_head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    HEADS: tl.constexpr = KEY_HEADS * GROUP
    for member in range(GROUP):
        head = key_head * GROUP + member
        queried = _load(query, row, head, HEADS, SIZE, WIDTH, rows) * scale
        merged = _load(block, row, head, HEADS, SIZE, WIDTH, rows)
        top = tl.load(block_lse + row * HEADS + head, mask=row < rows, other=0.0)
        total = tl.full((ROWS,), 1.0, tl.float32)
        for step in tl.static_range(STEPS):
            score = tl.sum(queried * _load(own_keys[step], row, key_head, KEY_HEADS, SIZE, WIDTH, rows), 1)
            peak = tl.maximum(top, score)
            shrink, weight = tl.exp(top - peak), tl.exp(score - peak)
            own = _load(own_values[step], row, key_head, KEY_HEADS, SIZE, WIDTH, rows)
            merged = merged * shrink[:, None] + own * weight[:, None]
            total = total * shrink + weight
            top = peak
        _store(output, merged / total[:, None], row, head, HEADS, SIZE, WIDTH, rows)
        tl.store(lse + row * HEADS + head, top + tl.log(total), mask=row < rows)


@triton.jit
def _slope(query, grad, output, lse, key, value, row, head, HEADS: tl.constexpr, SIZE: tl.constexpr,
           WIDTH: tl.constexpr, rows, scale):  # fmt: skip
    """Queries and output gradients of a head, the own key's weight in its rows and the slope of their scores."""
    queried = _load(query, row, head, HEADS, SIZE, WIDTH, rows)
    pushed = _load(grad, row, head, HEADS, SIZE, WIDTH, rows)
    whole = tl.load(lse + row * HEADS + head, mask=row < rows, other=0.0)
    weight = tl.exp(tl.sum(queried * key, 1) * scale - whole)
    # The row constant sum(grad * output) is taken off inside the sum.
    pull = tl.sum(pushed * (value - _load(output, row, head, HEADS, SIZE, WIDTH, rows)), 1)
    return queried, pushed, weight, weight * pull * scale


@triton.jit
def spread_rows(
    query, grad, output, lse, own_keys, own_values, d_query, d_own_keys, d_own_values, rows, scale,
    STEPS: tl.constexpr, GROUP: tl.constexpr, KEY_HEADS: tl.constexpr,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradients of the own keys and values, and their part added to the queries'.

    Slopes are made twice, for queries and for keys: sums over steps and over heads do not fit registers at once.
    """
    row, key_head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    HEADS: tl.constexpr = KEY_HEADS * GROUP
    for member in range(GROUP):
        head = key_head * GROUP + member
        total = _load(d_query, row, head, HEADS, SIZE, WIDTH, rows)
        for step in tl.static_range(STEPS):
            key = _load(own_keys[step], row, key_head, KEY_HEADS, SIZE, WIDTH, rows)
            value = _load(own_values[step], row, key_head, KEY_HEADS, SIZE, WIDTH, rows)
            _, _, _, slope = _slope(
                query, grad, output, lse, key, value, row, head, HEADS, SIZE, WIDTH, rows, scale
            )  # fmt: skip
            total += slope[:, None] * key
        _store(d_query, total, row, head, HEADS, SIZE, WIDTH, rows)
    for step in tl.static_range(STEPS):
        key = _load(own_keys[step], row, key_head, KEY_HEADS, SIZE, WIDTH, rows)
        value = _load(own_values[step], row, key_head, KEY_HEADS, SIZE, WIDTH, rows)
        d_key = tl.zeros((ROWS, WIDTH), tl.float32)
        d_value = tl.zeros((ROWS, WIDTH), tl.float32)
        for member in range(GROUP):
            head = key_head * GROUP + member
            queried, pushed, weight, slope = _slope(
                query, grad, output, lse, key, value, row, head, HEADS, SIZE, WIDTH, rows, scale
            )  # fmt: skip
            d_key += slope[:, None] * queried
            d_value += weight[:, None] * pushed
        _store(d_own_keys[step], d_key, row, key_head, KEY_HEADS, SIZE, WIDTH, rows)
        _store(d_own_values[step], d_value, row, key_head, KEY_HEADS, SIZE, WIDTH, rows)


def merge(
    query: Tensor, block: Tensor, block_lse: Tensor, own_keys: Sequence[Tensor], own_values: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Output [batch, heads, rows, size] and log-sum-exp [batch, heads, rows] over the causal block and the own keys."""
    output = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
    lse = torch.empty(output.shape[:-1], dtype=torch.float32, device=query.device)
    states = [_by_row(entry) for entry in (query, block, block_lse)]
    owned = [tuple(_by_row(entry) for entry in group) for group in (own_keys, own_values)]
    _launch(merge_rows, query, own_keys[0], [*states, *owned, output, lse], len(own_keys))
    return output.transpose(1, 2), lse.transpose(1, 2)


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
    states = [_by_row(entry) for entry in (query, grad, output, lse)]
    owned = [tuple(_by_row(entry) for entry in group) for group in (own_keys, own_values)]
    gradients = [tuple(torch.empty_like(entry) for entry in group) for group in owned]
    changed = _by_row(d_query)
    _launch(spread_rows, query, own_keys[0], [*states, *owned, changed, *gradients], len(own_keys))
    d_keys, d_values = ([entry.transpose(1, 2) for entry in group] for group in gradients)
    return changed.transpose(1, 2), d_keys, d_values


def _by_row(states: Tensor) -> Tensor:
    """[batch, heads, rows, ...] to [batch, rows, heads, ...], without a copy where it is made from that."""
    return states.transpose(1, 2).contiguous()


def _launch(kernel, query: Tensor, key: Tensor, tensors: list, steps: int) -> None:
    batch, heads, rows, size = query.shape
    constants = shape_of(steps, heads, key.shape[1], size)
    grid = (triton.cdiv(batch * rows, constants["ROWS"]), constants["KEY_HEADS"])
    kernel[grid](*tensors, batch * rows, size**-0.5, **constants, **OPTIONS)


def shape_of(steps: int, heads: int, key_heads: int, size: int) -> dict[str, int]:
    """What both kernels are built for."""
    width = triton.next_power_of_2(size)
    rows = max(1, TILE // width)
    return {
        "STEPS": steps,
        "GROUP": heads // key_heads,
        "KEY_HEADS": key_heads,
        "SIZE": size,
        "WIDTH": width,
        "ROWS": rows,
    }
