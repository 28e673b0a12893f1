from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from eagle3_kernels import DraftLoss, Teacher, draft_loss, draft_loss_reference  # noqa: E402
from eagle3_kernels.draft_loss import _top  # noqa: E402

pytestmark = pytest.mark.torch

STEPS, ROWS, WIDTH, VOCABULARY = 3, 29, 24, 50


def case(dtype: torch.dtype, frozen: bool = False):
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    hidden = normal(STEPS, ROWS, WIDTH).requires_grad_()
    head = (normal(VOCABULARY, WIDTH) / 3).requires_grad_(not frozen)
    kept = torch.rand(ROWS, generator=generator, dtype=torch.float64).to(dtype)
    teacher = Teacher(normal(ROWS, WIDTH), normal(VOCABULARY, WIDTH) / 3, kept=kept)
    used = torch.rand(STEPS, ROWS, generator=generator) < 0.7
    for step in range(STEPS):
        used[step, ROWS - step :] = False
    return hidden, head, teacher, used * torch.tensor([[0.5], [0.3], [0.2]], dtype=dtype)


def test_the_draft_is_the_first_of_the_largest_logits() -> None:
    steps = torch.randint(0, 9, (3, 4, 512), generator=torch.Generator().manual_seed(2)).float()
    for logits in (steps, steps[..., :500]):
        top, choices = _top(logits)
        assert torch.equal(top, logits.amax(-1))
        assert choices.tolist() == [[row.index(max(row)) for row in entry] for entry in logits.tolist()]


def double(teacher: Teacher) -> Teacher:
    kept = None if teacher.kept is None else teacher.kept.double()
    return replace(teacher, hidden=teacher.hidden.double(), head=teacher.head.double(), kept=kept)


def assert_exact(found: DraftLoss, inputs, teacher: Teacher, weights: torch.Tensor, kind: str) -> None:
    """Outputs and gradients of float32 equal the definition in float64."""
    exact_inputs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact = draft_loss_reference(*exact_inputs, double(teacher), weights.double(), kind=kind)
    assert torch.equal(found.choices, exact.choices)
    for mine, true in ((found.total, exact.total), (found.losses, exact.losses), (found.alphas, exact.alphas)):
        torch.testing.assert_close(mine.double(), true, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(found.total * 3, inputs)
    for mine, true in zip(gradients, torch.autograd.grad(exact.total * 3, exact_inputs), strict=True):
        torch.testing.assert_close(mine.double(), true, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["kl", "lk_hybrid"])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_loss_choices_and_gradients_equal_the_definition(kind: str, chunk: int) -> None:
    hidden, head, teacher, weights = case(torch.float32)
    found = draft_loss(hidden, head, teacher, weights, kind=kind, chunk=chunk)
    assert_exact(found, (hidden, head), teacher, weights, kind)


@pytest.mark.parametrize("chunk", [7, None])
def test_later_steps_of_the_last_rows_are_judged_by_teachers_beyond_them(chunk: int | None) -> None:
    hidden, head, teacher, weights = case(torch.float32)
    count = ROWS - STEPS + 1
    hidden = hidden.detach()[:, :count].requires_grad_()
    weights = torch.full((STEPS, count), 0.4)
    found = draft_loss(hidden, head, teacher, weights, chunk=chunk)
    assert bool((found.losses > 0).all())
    assert_exact(found, (hidden, head), teacher, weights, "kl")


@pytest.mark.parametrize("kind", ["kl", "lk_hybrid"])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.7, 3.0)])
def test_the_triton_row_pass_equals_the_definition(triton_path, kind: str, scale: float, softcap: float | None) -> None:
    hidden, head, teacher, weights = case(torch.float32)
    teacher = replace(teacher, scale=scale, softcap=softcap)
    triton_path.setattr("eagle3_kernels.draft_loss_triton.BLOCK", 16)
    found = draft_loss(hidden, head, teacher, weights, kind=kind, chunk=16)
    assert_exact(found, (hidden, head), teacher, weights, kind)


def test_the_triton_row_pass_in_bf16_errs_as_plain_torch_does(triton_path) -> None:
    hidden, head, teacher, weights = case(torch.bfloat16)
    ours = torch.autograd.grad(draft_loss(hidden, head, teacher, weights).total, (hidden, head))
    triton_path.undo()
    plain = torch.autograd.grad(draft_loss(hidden, head, teacher, weights).total, (hidden, head))
    for found, wanted in zip(ours, plain, strict=True):
        assert (found - wanted).norm() <= 0.01 * wanted.norm()


def test_without_gradients_the_figures_are_the_same() -> None:
    hidden, head, teacher, weights = case(torch.float32)
    with_gradient = draft_loss(hidden, head, teacher, weights)
    with torch.no_grad():
        without = draft_loss(hidden, head, teacher, weights)
    for found, wanted in zip(without, with_gradient, strict=True):
        assert torch.equal(found, wanted)


def test_without_a_known_share_alpha_is_over_the_draft_vocabulary() -> None:
    hidden, head, teacher, weights = case(torch.float64)
    found = draft_loss(hidden, head, replace(teacher, kept=None), weights)
    wanted = draft_loss(hidden, head, replace(teacher, kept=torch.ones(ROWS, dtype=torch.float64)), weights)
    assert torch.equal(found.alphas, wanted.alphas)
    assert bool((found.alphas[weights > 0] > 0).all())


def test_bf16_gradient_error_is_that_of_the_plain_loss_in_bf16() -> None:
    hidden, head, teacher, weights = case(torch.bfloat16)
    exact_inputs = (hidden.detach().double().requires_grad_(), head.detach().double().requires_grad_())
    exact = torch.autograd.grad(draft_loss_reference(*exact_inputs, double(teacher), weights.double())[0], exact_inputs)
    ours = torch.autograd.grad(draft_loss(hidden, head, teacher, weights)[0], (hidden, head))
    plain = torch.autograd.grad(draft_loss_reference(hidden, head, teacher, weights)[0], (hidden, head))
    for found, naive, wanted in zip(ours, plain, exact, strict=True):
        assert (found - wanted).norm() <= 1.1 * (naive - wanted).norm()


def test_a_frozen_head_gets_no_gradient_and_the_hidden_states_the_same_one() -> None:
    hidden, head, teacher, weights = case(torch.float32, frozen=True)
    (found,) = torch.autograd.grad(draft_loss(hidden, head, teacher, weights)[0], (hidden,))
    trained = head.clone().requires_grad_()
    wanted, _ = torch.autograd.grad(draft_loss(hidden, trained, teacher, weights)[0], (hidden, trained))
    assert torch.equal(found, wanted)


def test_step_k_of_row_m_learns_from_the_teacher_of_row_m_plus_k() -> None:
    _, head, _, _ = case(torch.float64)
    teacher_hidden = torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    hidden = torch.zeros(STEPS, ROWS, WIDTH, dtype=torch.float64)
    weights = torch.zeros(STEPS, ROWS)
    for step in range(STEPS):
        hidden[step, : ROWS - step] = teacher_hidden[step:]
        weights[step, : ROWS - step] = 1.0
    total, losses, *_ = draft_loss(hidden, head.detach(), Teacher(teacher_hidden, head.detach()), weights)
    torch.testing.assert_close(losses, torch.zeros_like(losses), rtol=0, atol=1e-6)
    assert abs(total) < 1e-4


def test_the_targets_scale_and_soft_cap_shape_the_teacher() -> None:
    _, _, teacher, _ = case(torch.float64)
    plain = teacher.hidden @ teacher.head.T
    shaped = Teacher(teacher.hidden, teacher.head, scale=0.5, softcap=2.0).logits(slice(None))
    torch.testing.assert_close(shaped.double(), 2 * torch.tanh(plain * 0.25), rtol=1e-5, atol=1e-5)


def test_an_unknown_loss_is_named() -> None:
    hidden, head, teacher, weights = case(torch.float32)
    with pytest.raises(ValueError, match="'kld'"):
        draft_loss(hidden, head, teacher, weights, kind="kld")
