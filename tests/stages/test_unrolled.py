"""A training step in parts, beside the plain drafter under autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from eagle3_backend.drafter.config import drafter_for  # noqa: E402
from eagle3_backend.stages import unrolled  # noqa: E402
from eagle3_backend.stages.drafter_model import Drafter, Rows  # noqa: E402
from eagle3_kernels import DraftLoss, Teacher, draft_loss  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = 4
DOCUMENTS = (20, 33, 7)
RUNS = ((3, 9), (12, 20), (25, 48), (50, 53), (54, 60))
"""Used rows of the documents: two answers in the first, others after a prompt, the last with one row left out."""
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drafter_with(tiny, flags) -> Drafter:
    drafter = Drafter(
        replace(drafter_for(tiny.CONFIG, tiny.AUX, 32), **dict.fromkeys(flags, True)),
        normal(tiny.VOCABULARY, tiny.WIDTH),
    ).double()
    drafter.aux_scale.copy_(normal(3 * tiny.WIDTH).abs() + 0.5)
    with torch.no_grad():
        for place, weight in enumerate(drafter.parameters()):
            weight.copy_(0.3 * normal(*weight.shape, seed=place))
    return drafter


@pytest.fixture
def rows(tiny) -> Rows:
    used = torch.cat([torch.arange(first, stop) for first, stop in RUNS])
    text = torch.randint(0, tiny.VOCABULARY, (sum(DOCUMENTS) + STEPS,), generator=torch.Generator().manual_seed(1))
    tokens = text[used + torch.arange(STEPS)[:, None]]
    positions = torch.cat([torch.arange(length) for length in DOCUMENTS])
    aux = normal(sum(DOCUMENTS), 3 * tiny.WIDTH, seed=3)
    return Rows(aux, text[: sum(DOCUMENTS)], positions, DOCUMENTS, used, tokens)


class Judged:
    """The loss of any part of the used rows, with a weight for each row and step."""

    def __init__(self, tiny, count: int) -> None:
        self.head, self.teacher_head = normal(32, tiny.WIDTH, seed=4), normal(32, tiny.WIDTH, seed=5)
        self.last = normal(count, tiny.WIDTH, seed=6)
        self.weights = normal(STEPS, count, seed=7).abs()
        for step in range(STEPS):
            self.weights[step, count - step :] = 0

    def __call__(self, hidden: torch.Tensor, places: slice) -> DraftLoss:
        judges = slice(places.start, places.stop + STEPS - 1)
        return draft_loss(hidden, self.head, Teacher(self.last[judges], self.teacher_head), self.weights[:, places])


def gradients(drafter: Drafter) -> dict[str, torch.Tensor]:
    found = {name: weight.grad for name, weight in drafter.named_parameters() if weight.grad is not None}
    drafter.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("size", [5, 17, 1000])
@pytest.mark.parametrize(
    "flags", [(), *((flag,) for flag in FLAGS), FLAGS], ids=lambda flags: "+".join(flags) or "plain"
)
def test_a_step_in_parts_is_the_plain_step(tiny, rows, monkeypatch, flags, size) -> None:
    monkeypatch.setattr(unrolled, "PART_ROWS", size)
    drafter, judge = drafter_with(tiny, flags), Judged(tiny, len(rows.used))
    plain = judge(drafter(rows), slice(0, len(rows.used)))
    plain.total.backward()
    wanted = gradients(drafter)
    parts = unrolled.unroll(drafter, rows, RUNS, torch.float64, judge)
    assert len(parts) == {5: 8, 17: 3, 1000: 1}[size]
    torch.testing.assert_close(torch.cat([part.losses for part in parts], 1), plain.losses, rtol=1e-10, atol=1e-10)
    assert float(sum(part.total for part in parts)) == pytest.approx(float(plain.total.detach()), rel=1e-12)
    found = gradients(drafter)
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-9, atol=1e-9, msg=name)


def test_products_in_bf16_give_about_the_gradients_of_float64(tiny, rows, monkeypatch) -> None:
    monkeypatch.setattr(unrolled, "PART_ROWS", 17)
    drafter, judge = drafter_with(tiny, ()), Judged(tiny, len(rows.used))
    unrolled.unroll(drafter, rows, RUNS, torch.float64, judge)
    exact = gradients(drafter)
    drafter.float()

    def narrow(hidden: torch.Tensor, places: slice) -> DraftLoss:
        return judge(hidden.double(), places)

    unrolled.unroll(drafter, rows, RUNS, torch.bfloat16, narrow)
    for name, gradient in gradients(drafter).items():
        assert gradient.dtype == torch.float32
        assert (gradient - exact[name]).norm() < 0.05 * exact[name].norm(), name


def test_without_gradients_the_losses_are_the_same_and_nothing_is_left_at_the_weights(tiny, rows) -> None:
    drafter, judge = drafter_with(tiny, ()), Judged(tiny, len(rows.used))
    (learning,) = unrolled.unroll(drafter, rows, RUNS, torch.float64, judge)
    gradients(drafter)
    with torch.no_grad():
        (looking,) = unrolled.unroll(drafter, rows, RUNS, torch.float64, judge)
    assert torch.equal(looking.losses, learning.losses)
    assert not gradients(drafter)


def test_parts_see_the_keys_of_their_documents_only_and_query_from_the_first_used_row_on() -> None:
    first, second = unrolled.parts_of(DOCUMENTS, RUNS, 23)
    assert (first.places, second.places) == (slice(0, 23), slice(23, 46))
    # All of the first document that is used, and the second one's rows 5 to 13.
    assert (first.keys, first.key_lengths, first.lengths) == (slice(0, 34), (20, 14), (17, 9))
    assert first.among == (*range(6), *range(9, 17), *range(17, 26))
    assert (second.keys, second.key_lengths, second.lengths) == (slice(20, 60), (33, 7), (19, 6))
    assert (first.runs, second.runs) == ((6, 8, 9), (14, 3, 6))
    (alone,) = unrolled.parts_of((30,), [(4, 30)], 26)
    assert (alone.lengths, alone.key_lengths, alone.among) == ((26,), (30,), None)


def test_what_a_step_holds_grows_by_little_more_than_a_state_for_each_row(tiny, monkeypatch, held_bytes) -> None:
    monkeypatch.setattr(unrolled, "PART_ROWS", 32)
    drafter = drafter_with(tiny, ())

    def peak(count: int) -> float:
        places = torch.arange(count)
        tokens = torch.zeros(STEPS, count, dtype=torch.int64)
        rows = Rows(normal(count, 3 * tiny.WIDTH), tokens[0], places, (count,), places, tokens)
        judge = Judged(tiny, count)
        found = held_bytes(lambda: unrolled.unroll(drafter, rows, [(0, count)], torch.float64, judge))
        gradients(drafter)
        return found

    keys = 2 * drafter.config.kv_heads * drafter.config.head_dim
    weights = 32 * drafter.config.heads
    # State, keys and values with their gradients; keys that the last part sees, with theirs, and the rows' results;
    # attention's weights in the last part, and two times those of a step while its gradients are made.
    assert peak(256) - peak(128) < 128 * 8 * (2 * tiny.WIDTH + 5 * keys + 8 * STEPS + (STEPS + 2) * weights)
