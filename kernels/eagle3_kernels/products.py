"""Products with a model's matrices whose own gradients are made late: once for all products of a matrix, straight into
``weight.grad``.

Autograd would make a matrix's gradient at every product, in 16 bit, and hold the sum of them beside the float32 one
until the last is there. Here a product only notes its input and the gradient of its output; `spread` makes one large
product of all notes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_Notes = list[tuple[Tensor, Tensor]]
_Columns = tuple[int, int]


class Products:
    """Products in ``dtype`` with matrices that are kept in a wider one."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._matrices: dict[tuple[Tensor, ...], Tensor] = {}
        self._notes: dict[tuple[tuple[Tensor, ...], _Columns], _Notes] = {}

    def __call__(
        self,
        inputs: Tensor,
        *weights: Tensor,
        columns: _Columns | None = None,
        added: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Tensor:
        """``inputs`` [rows, in] times each of ``weights`` [out, in], side by side: [rows, sum of out].

        With ``columns`` only those of the weights, from first to last + 1, are meant; ``added`` is added to the result.
        Where the result is ``known`` already, only its gradient is of interest, and nothing is multiplied.
        """
        if weights not in self._matrices:
            narrow = [weight.detach().to(self.dtype) for weight in weights]
            self._matrices[weights] = narrow[0] if len(narrow) == 1 else torch.cat(narrow)
        first, stop = columns = columns or (0, weights[0].shape[1])
        notes = self._notes.setdefault((weights, columns), [])
        return _Product.apply(inputs, self._matrices[weights][:, first:stop], added, known, notes, *weights)

    @torch.no_grad()
    def spread(self) -> None:
        """Add the gradients of all products since the last call to ``grad`` of the weights."""
        for (weights, (first, stop)), notes in self._notes.items():
            if not notes:
                continue
            inputs = _joined([entry for entry, _ in notes])
            slopes = [entry for _, entry in notes]
            notes.clear()
            start = 0
            for weight in weights:
                rows = slice(start, start + len(weight))
                start = rows.stop
                change = _joined([entry[:, rows] for entry in slopes]).T @ inputs
                if weight.grad is None and change.shape == weight.shape:
                    weight.grad = change.to(weight.dtype)
                    continue
                if weight.grad is None:
                    weight.grad = torch.zeros_like(weight)
                weight.grad[:, first:stop] += change


class _Product(torch.autograd.Function):
    """The weights are arguments only so that a result has a gradient where its input has none."""

    @staticmethod
    def forward(
        context: Any,
        inputs: Tensor,
        matrix: Tensor,
        added: Tensor | None,
        known: Tensor | None,
        notes: _Notes,
        *_: Tensor,
    ) -> Tensor:
        context.save_for_backward(inputs, matrix)
        context.notes = notes
        if known is not None:
            return known.detach()
        return inputs @ matrix.T if added is None else torch.addmm(added, inputs, matrix.T)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, matrix = context.saved_tensors
        context.notes.append((inputs, grad))
        d_inputs = grad @ matrix if context.needs_input_grad[0] else None
        d_added = grad if context.needs_input_grad[2] else None
        return d_inputs, None, d_added, *[None] * (len(context.needs_input_grad) - 3)


def _joined(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
