from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eagle3_kernels import (  # noqa: E402
    attention_kept,
    flash,
    merged_attention,
    ttt_attention,
    ttt_attention_reference,
)

pytestmark = pytest.mark.torch

HEADS, SIZE = 4, 16


def inputs(steps: int, dtype: torch.dtype, rows: int = 37, key_heads: int = HEADS, batch: int = 2):
    generator = torch.Generator().manual_seed(steps)

    def normal(heads: int) -> torch.Tensor:
        return torch.randn(batch, heads, rows, SIZE, generator=generator, dtype=dtype).requires_grad_()

    return [normal(HEADS), *(normal(key_heads) for _ in range(2 + 2 * steps))]


def run(attention, tensors: list[torch.Tensor], steps: int, **options) -> list[torch.Tensor]:
    query, key, value, *own = tensors
    output = attention(query, key, value, own[:steps], own[steps:], **options)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(9)).to(output.dtype)
    return [output, *torch.autograd.grad((output * direction).sum(), tensors)]


def double(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def assert_exact(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for mine, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-5, atol=1e-5)


def by_document(query, key, value, own_keys, own_values, *, documents, key_documents=None, window=None) -> torch.Tensor:
    """The definition, one document after the other."""
    lengths = list(documents), list(key_documents or documents)
    queries, *own = (entry.split(lengths[0], -2) for entry in (query, *own_keys, *own_values))
    keys, values = (entry.split(lengths[1], -2) for entry in (key, value))
    steps, outputs = len(own_keys), []
    for place, rows in enumerate(queries):
        mine = [entry[place] for entry in own]
        outputs.append(ttt_attention_reference(rows, keys[place], values[place], mine[:steps], mine[steps:], window))
    return torch.cat(outputs, -2)


def last_rows(tensors: list[torch.Tensor], documents, kept) -> list[torch.Tensor]:
    """Queries and own keys of the last ``kept`` rows of each document only."""
    ends = torch.tensor(documents).cumsum(0).tolist()
    rows = torch.cat([torch.arange(end - count, end) for end, count in zip(ends, kept, strict=True)])
    query, key, value, *own = tensors
    cut = [entry.detach()[:, :, rows].requires_grad_() for entry in (query, *own)]
    return [cut[0], key, value, *cut[1:]]


@pytest.mark.parametrize("key_heads", [HEADS, 2])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_output_and_every_gradient_equal_the_full_softmax(steps: int, key_heads: int) -> None:
    tensors = inputs(steps, torch.float32, key_heads=key_heads)
    assert_exact(run(merged_attention, tensors, steps), run(ttt_attention_reference, double(tensors), steps))


@pytest.mark.parametrize(("at_once", "least"), [(1 << 20, 16), (3 * 37 * 37, 16), (1, 5)])
@pytest.mark.parametrize("kept", [37, 30])
@pytest.mark.parametrize(("steps", "key_heads"), [(0, HEADS), (4, 2)])
def test_kept_weights_give_the_full_softmax_however_it_is_cut(
    monkeypatch, at_once, least, kept, steps, key_heads
) -> None:
    monkeypatch.setattr(attention_kept, "SCORES_AT_ONCE", at_once)
    monkeypatch.setattr(attention_kept, "LEAST_ROWS", least)
    tensors = inputs(steps, torch.float64, key_heads=key_heads)
    query, key, value, *own = tensors
    cut = [entry.detach()[:, :, -kept:].requires_grad_() for entry in (query, *own)]
    tensors = [cut[0], key, value, *cut[1:]]
    found = run(attention_kept.kept_attention, tensors, steps)
    for mine, exact in zip(found, run(ttt_attention_reference, tensors, steps), strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("key_heads", [HEADS, 2])
@pytest.mark.parametrize("steps", [1, 4])
def test_the_triton_merge_equals_the_full_softmax(triton_path, steps: int, key_heads: int) -> None:
    tensors = inputs(steps, torch.float32, key_heads=key_heads)
    assert_exact(run(merged_attention, tensors, steps), run(ttt_attention_reference, double(tensors), steps))


def test_the_triton_merge_takes_heads_of_any_size(triton_path) -> None:
    tensors = [entry[..., :12].detach().requires_grad_() for entry in inputs(2, torch.float32)]
    assert_exact(run(merged_attention, tensors, 2), run(ttt_attention_reference, double(tensors), 2))


def test_bf16_error_is_that_of_the_full_softmax_in_bf16() -> None:
    tensors = inputs(3, torch.bfloat16)
    exact = run(ttt_attention_reference, double(tensors), 3)
    plain = run(ttt_attention_reference, tensors, 3)
    for attention in (merged_attention, attention_kept.kept_attention):
        for ours, naive, wanted in zip(run(attention, tensors, 3), plain, exact, strict=True):
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


@pytest.mark.parametrize("window", [1, 7, 256, 299, 1000])
def test_a_window_hides_what_lies_further_back_than_it(window: int) -> None:
    tensors = inputs(2, torch.float32, rows=300, batch=1, key_heads=2)
    exact = run(ttt_attention_reference, double(tensors), 2, window=window)
    assert_exact(run(merged_attention, tensors, 2, window=window), exact)
    query, key, value, *_ = tensors
    before = merged_attention(query, key, value, [], [], window)
    with torch.no_grad():
        value[:, :, 10] += 1.0
    changed = (merged_attention(query, key, value, [], [], window) != before).any(-1)
    assert changed.nonzero()[:, 2].unique().tolist() == list(range(10, min(10 + window, 300)))


@pytest.mark.parametrize("window", [None, 50])
def test_documents_in_a_packed_row_do_not_see_each_other(window: int | None) -> None:
    documents = (40, 300, 1, 59)
    tensors = inputs(2, torch.float32, rows=sum(documents), batch=1, key_heads=2)
    exact = run(by_document, double(tensors), 2, documents=documents, window=window)
    assert_exact(run(ttt_attention, tensors, 2, documents=documents, window=window), exact)


def test_the_definition_for_the_last_rows_is_that_of_all_rows_cut() -> None:
    tensors = inputs(2, torch.float64)
    whole = ttt_attention_reference(*tensors[:3], tensors[3:5], tensors[5:])
    query, key, value, *own = last_rows(tensors, [37], [9])
    last = ttt_attention_reference(query, key, value, own[:2], own[2:])
    torch.testing.assert_close(last, whole[:, :, -9:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", [None, 9, 250, 350])
@pytest.mark.parametrize("kept", [1, 100, 299])
def test_queries_may_be_the_last_rows_of_a_document_only(kept: int, window: int | None) -> None:
    tensors = last_rows(inputs(2, torch.float32, rows=300, batch=1, key_heads=2), [300], [kept])
    exact = run(ttt_attention_reference, double(tensors), 2, window=window)
    assert_exact(run(merged_attention, tensors, 2, window=window), exact)


@pytest.mark.parametrize("window", [None, 50])
def test_queries_may_be_the_last_rows_of_each_packed_document(window: int | None) -> None:
    documents, kept = (40, 600, 1, 59), (7, 350, 1, 59)
    tensors = inputs(2, torch.float32, rows=sum(documents), batch=1, key_heads=2)
    options = {"documents": kept, "key_documents": documents, "window": window}
    tensors = last_rows(tensors, documents, kept)
    exact = run(by_document, double(tensors), 2, **options)
    assert_exact(run(ttt_attention, tensors, 2, **options), exact)


class PackedFlash:
    """Torch's flash operators for GPUs, computed by definition on a CPU; the signature is theirs, and so is the causal
    mask that ends at the last key of each document."""

    def visible(self, ends, key_ends, window_size_left: int) -> torch.Tensor:
        rows, keys = (torch.arange(int(entry[-1])) for entry in (ends, key_ends))
        document = torch.bucketize(rows, ends[1:].long(), right=True)
        key_document = torch.bucketize(keys, key_ends[1:].long(), right=True)
        from_end = ends[1:].long()[document] - rows
        distance = (key_ends[1:].long()[key_document] - keys) - from_end[:, None]
        reach = distance <= window_size_left if window_size_left >= 0 else torch.ones_like(distance, dtype=torch.bool)
        return (document[:, None] == key_document) & (distance >= 0) & reach

    def scores(self, query, key, ends, key_ends, window_size_left: int) -> torch.Tensor:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        scores = torch.einsum("qhd,khd->hqk", query, key) * query.shape[-1] ** -0.5
        return scores.masked_fill(~self.visible(ends, key_ends, window_size_left), -torch.inf)

    def forward(
        self, query, key, value, ends, key_ends, longest, key_longest, dropout, causal, debug,
        *, window_size_left, window_size_right,
    ):  # fmt: skip
        assert (longest, key_longest) == (int(ends.diff().max()), int(key_ends.diff().max()))
        assert (dropout, causal, debug, window_size_right) == (0.0, True, False, 0)
        scores = self.scores(query, key, ends, key_ends, window_size_left)
        value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        output = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value)
        return output, scores.logsumexp(-1), torch.zeros(2), torch.zeros(()), torch.zeros(0)

    def backward(
        self, grad, query, key, value, output, lse, ends, key_ends, longest, key_longest, dropout, causal, seed, offset,
        *, window_size_left, window_size_right,
    ):  # fmt: skip
        group = query.shape[1] // key.shape[1]
        weight = (self.scores(query, key, ends, key_ends, window_size_left) - lse[..., None]).exp()
        constant = (grad * output).sum(-1).T
        pull = torch.einsum("qhd,khd->hqk", grad, value.repeat_interleave(group, 1))
        slope = weight * (pull - constant[..., None]) * query.shape[-1] ** -0.5
        d_query = torch.einsum("hqk,khd->qhd", slope, key.repeat_interleave(group, 1))
        d_key, d_value = torch.einsum("hqk,qhd->khd", slope, query), torch.einsum("hqk,qhd->khd", weight, grad)
        return d_query, d_key.unflatten(1, (-1, group)).sum(2), d_value.unflatten(1, (-1, group)).sum(2)


@pytest.mark.parametrize(("documents", "kept"), [(None, None), ((20, 1, 16), None), ((20, 1, 16), (4, 1, 15))])
@pytest.mark.parametrize("window", [None, 9])
def test_the_way_over_a_gpu_gives_the_same(triton_path, documents, kept, window: int | None) -> None:
    stand_in = PackedFlash()
    triton_path.setattr(flash, "gpu_takes", lambda query: True)
    triton_path.setattr(flash, "_gpu", stand_in.forward)
    triton_path.setattr(flash, "_gpu_backward", stand_in.backward)
    tensors = inputs(2, torch.float32, batch=1 if documents else 2, key_heads=2)
    options = {"documents": documents, "window": window}
    if kept:
        tensors = last_rows(tensors, documents, kept)
        options |= {"documents": kept, "key_documents": documents}
    exact = run(by_document, double(tensors), 2, **{**options, "documents": options["documents"] or (37,)})
    assert_exact(run(ttt_attention, tensors, 2, **options), exact)


def test_torchs_own_gpu_operators_take_what_they_are_given() -> None:
    tensors = [entry.detach().bfloat16().to("meta") for entry in inputs(0, torch.float32, key_heads=2)]
    output, lse, random = flash.gpu_forward(*tensors, flash.Lengths((37, 37), (37, 37)), 9)
    assert (output.shape, lse.shape) == (tensors[0].shape, tensors[0].shape[:3])
    gradients = flash.gpu_backward(output, *tensors, output, lse, flash.Lengths((37, 37), (37, 37)), 9, random)
    assert [entry.shape for entry in gradients] == [entry.shape for entry in tensors]
