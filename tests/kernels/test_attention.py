from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eagle3_kernels import merged_attention, ttt_attention, ttt_attention_reference  # noqa: E402

pytestmark = pytest.mark.torch


def inputs(steps: int, dtype: torch.dtype, rows: int = 37) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(steps)
    shape = (2, 3, rows, 16)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for _ in range(3 + 2 * steps)]


def run(attention, tensors: list[torch.Tensor], steps: int) -> list[torch.Tensor]:
    query, key, value, *own = tensors
    output = attention(query, key, value, own[:steps], own[steps:])
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(9)).to(output.dtype)
    return [output, *torch.autograd.grad((output * direction).sum(), tensors)]


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_output_and_every_gradient_equal_the_full_softmax(steps: int) -> None:
    tensors = inputs(steps, torch.float32)
    exact = run(ttt_attention_reference, [tensor.detach().double().requires_grad_() for tensor in tensors], steps)
    for found, wanted in zip(run(merged_attention, tensors, steps), exact, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_bf16_error_is_that_of_the_full_softmax_in_bf16() -> None:
    tensors = inputs(3, torch.bfloat16)
    exact = run(ttt_attention_reference, [tensor.detach().double().requires_grad_() for tensor in tensors], 3)
    plain, merged = run(ttt_attention_reference, tensors, 3), run(merged_attention, tensors, 3)
    for ours, naive, wanted in zip(merged, plain, exact, strict=True):
        assert (ours - wanted).norm() <= 1.1 * (naive - wanted).norm()


def test_a_row_sees_only_its_own_key_of_later_steps() -> None:
    query, key, value, *own = inputs(2, torch.float64)
    before = merged_attention(query, key, value, own[:2], own[2:])
    with torch.no_grad():
        own[0][:, :, 5] += 1.0
        own[3][:, :, 5] += 1.0
    changed = (merged_attention(query, key, value, own[:2], own[2:]) != before).any(-1)
    assert changed[:, :, 5].all()
    assert changed.sum() == changed[:, :, 5].numel()


def test_padding_at_the_end_of_a_document_changes_nothing() -> None:
    query, key, value, *own = inputs(1, torch.float64, rows=20)
    cut = [tensor[:, :, :12] for tensor in (query, key, value, *own)]
    short = merged_attention(*cut[:3], cut[3:4], cut[4:])
    long = merged_attention(query, key, value, own[:1], own[1:])
    torch.testing.assert_close(long[:, :, :12], short, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [20, 300])
def test_short_and_long_documents_give_the_same_by_either_way(rows: int) -> None:
    query, key, value, *own = inputs(1, torch.float32, rows=rows)
    chosen = ttt_attention(query, key, value, own[:1], own[1:])
    merged = merged_attention(query, key, value, own[:1], own[1:])
    torch.testing.assert_close(chosen, merged, rtol=1e-5, atol=1e-5)
