"""The cheap parts of a layer, with backward by hand: what they keep is their input, and only the widest of what they
make, so that a step's memory is that of its matrix products.

Each equals the few lines of plain torch that `drafter_model` has for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def rms_norm(states: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """``states`` [rows, width] over their root mean square, times ``weight`` [width], computed in at least float32 and
    given in ``dtype``."""
    return _Norm.apply(states, weight, eps, dtype)


def swiglu(both: Tensor) -> Tensor:
    """``silu(gate) * up`` of ``both`` [rows, 2 * width], gate before up. Backward may be run once only: it puts the
    gradient in the place of ``both``, the widest tensor of a layer."""
    return _SwiGLU.apply(both)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the halves of ``states`` [rows, heads, size] by angles; ``cos`` and ``sin`` are [rows, 1, size / 2]."""
    return _Rotation.apply(states, cos, sin)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, states: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        wide = _wide(states)
        size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = size.square_().div_(states.shape[-1]).add_(eps).rsqrt_()
        context.save_for_backward(states, weight, scale)
        return (wide * scale).mul_(weight).to(dtype)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, scale = context.saved_tensors
        normed = _wide(states) * scale
        # A copy where the gradient is wide already: what follows is done in place.
        pushed = grad.to(normed.dtype, copy=True)
        by_channel = pushed * normed
        d_weight = by_channel.sum(0)
        if not context.needs_input_grad[0]:
            return None, d_weight, None, None
        mean = (by_channel @ weight).div_(states.shape[-1])
        change = pushed.mul_(weight).addcmul_(normed, mean[:, None], value=-1).mul_(scale)
        return change.to(states.dtype), d_weight, None, None


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, both: Tensor) -> Tensor:
        context.save_for_backward(both)
        gate, up = both.chunk(2, -1)
        return torch.nn.functional.silu(gate).mul_(up)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        (both,) = context.saved_tensors
        gate, up = both.chunk(2, -1)
        pushed = grad * up
        torch.mul(torch.nn.functional.silu(gate), grad, out=up)
        torch.ops.aten.silu_backward.grad_input(pushed, gate, grad_input=gate)
        return both


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        context.save_for_backward(cos, sin)
        return _turned(states, cos, sin)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = context.saved_tensors
        return _turned(grad, cos, -sin), None, None


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = states.chunk(2, -1)
    turned = torch.empty(states.shape, dtype=states.dtype, device=states.device)
    first, second = turned.chunk(2, -1)
    torch.mul(left, cos, out=first).addcmul_(right, sin, value=-1)
    torch.mul(right, cos, out=second).addcmul_(left, sin)
    return turned


def _wide(values: Tensor) -> Tensor:
    """float32, or float64 where the caller computes in it."""
    return values if values.dtype == torch.float64 else values.float()
