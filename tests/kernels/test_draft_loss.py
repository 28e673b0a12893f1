from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eagle3_kernels import Teacher, draft_loss, draft_loss_reference  # noqa: E402

pytestmark = pytest.mark.torch

STEPS, ROWS, WIDTH, VOCABULARY = 3, 29, 24, 50


def case(dtype: torch.dtype, frozen: bool = False):
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    hidden = normal(STEPS, ROWS, WIDTH).requires_grad_()
    head = (normal(VOCABULARY, WIDTH) / 3).requires_grad_(not frozen)
    teacher = Teacher(normal(ROWS, WIDTH), normal(VOCABULARY, WIDTH) / 3)
    used = torch.rand(STEPS, ROWS, generator=generator) < 0.7
    for step in range(STEPS):
        used[step, ROWS - step :] = False
    return hidden, head, teacher, used * torch.tensor([[0.5], [0.3], [0.2]], dtype=dtype)


def double(teacher: Teacher) -> Teacher:
    return Teacher(teacher.hidden.double(), teacher.head.double(), teacher.scale, teacher.softcap)


@pytest.mark.parametrize("kind", ["kl", "lk_hybrid"])
@pytest.mark.parametrize("chunk", [7, 64])
def test_loss_choices_and_gradients_equal_the_definition(kind: str, chunk: int) -> None:
    hidden, head, teacher, weights = case(torch.float32)
    total, losses, choices = draft_loss(hidden, head, teacher, weights, kind=kind, chunk=chunk)
    d_hidden, d_head = torch.autograd.grad(total * 3, (hidden, head))
    exact_inputs = (hidden.detach().double().requires_grad_(), head.detach().double().requires_grad_())
    exact = draft_loss_reference(*exact_inputs, double(teacher), weights.double(), kind=kind)
    exact_gradients = torch.autograd.grad(exact[0] * 3, exact_inputs)
    torch.testing.assert_close(total.double(), exact[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses.double(), exact[1], rtol=1e-5, atol=1e-5)
    assert torch.equal(choices, exact[2])
    torch.testing.assert_close(d_hidden.double(), exact_gradients[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(d_head.double(), exact_gradients[1], rtol=1e-5, atol=1e-6)


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
    total, losses, _ = draft_loss(hidden, head.detach(), Teacher(teacher_hidden, head.detach()), weights)
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
