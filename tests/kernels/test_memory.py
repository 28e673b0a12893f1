"""How large the largest tensor is that a kernel makes: what grows with what."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from eagle3_kernels import Teacher, draft_loss, merged_attention  # noqa: E402

pytestmark = pytest.mark.torch


class Largest(TorchDispatchMode):
    """Elements of the largest storage behind any result, forward and backward."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                size = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, size)
        return result


@pytest.mark.parametrize("rows", [200, 800])
def test_logits_are_those_of_a_chunk_whatever_the_number_of_rows(rows: int) -> None:
    steps, width, vocabulary, chunk = 3, 8, 512, 16
    hidden = torch.randn(steps, rows, width, requires_grad=True)
    head = torch.randn(vocabulary, width, requires_grad=True)
    teacher = Teacher(torch.randn(rows, width), torch.randn(vocabulary, width))
    with Largest() as seen:
        total = draft_loss(hidden, head, teacher, torch.ones(steps, rows), chunk=chunk).total
        torch.autograd.grad(total, (hidden, head))
    assert seen.elements == max(steps * chunk * vocabulary, steps * rows * width)


@pytest.mark.parametrize("rows", [300, 600])
def test_attention_makes_no_scores_of_rows_by_rows(rows: int) -> None:
    heads, size, steps = 2, 16, 3
    tensors = [torch.randn(1, heads, rows, size, requires_grad=True) for _ in range(3 + 2 * steps)]
    with Largest() as seen:
        output = merged_attention(*tensors[:3], tensors[3 : 3 + steps], tensors[3 + steps :])
        torch.autograd.grad(output.sum(), tensors)
    assert seen.elements == heads * rows * size
