"""The parts of a layer with a backward by hand, beside autograd over their plain formulas."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eagle3_kernels import Products, rms_norm, rotate, swiglu  # noqa: E402

pytestmark = pytest.mark.torch

functional = torch.nn.functional


def plain_norm(states, weight):
    return functional.rms_norm(states, states.shape[-1:], weight, 1e-5)


def plain_swiglu(both):
    gate, up = both.chunk(2, -1)
    return functional.silu(gate) * up


def plain_rotation(states, cos, sin):
    left, right = states.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def results(function, *tensors):
    given = [tensor.clone().requires_grad_() for tensor in tensors]
    output = function(*given)
    direction = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
    # The sum over a copy: a function may use what it was given for its gradient.
    return [output.detach().clone(), *torch.autograd.grad((output * direction).sum(), given)]


def assert_same(found, wanted) -> None:
    for mine, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-10, atol=1e-10)


def test_the_norm_is_that_of_torch() -> None:
    states, weight = torch.randn(7, 12, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    found = results(lambda states, weight: rms_norm(states, weight, 1e-5, torch.float64), states, weight)
    assert_same(found, results(plain_norm, states, weight))


def test_the_norm_of_narrow_states_is_computed_in_float32() -> None:
    states, weight = torch.randn(7, 512).bfloat16(), torch.randn(512)
    assert torch.equal(
        rms_norm(states, weight, 1e-5, torch.float32), rms_norm(states.float(), weight, 1e-5, torch.float32)
    )
    assert rms_norm(states, weight, 1e-5, torch.bfloat16).dtype == torch.bfloat16


def test_the_gated_product_is_that_of_torch() -> None:
    both = torch.randn(7, 24, dtype=torch.float64)
    assert_same(results(lambda both: swiglu(both * 1.0), both), results(plain_swiglu, both))


def test_a_rotation_turns_back_its_gradient() -> None:
    states, angles = torch.randn(7, 3, 8, dtype=torch.float64), torch.randn(7, 1, 4, dtype=torch.float64)
    turn = angles.cos() * 1.2, angles.sin() * 1.2
    found = results(lambda states: rotate(states, *turn), states)
    assert_same(found, results(lambda states: plain_rotation(states, *turn), states))


def test_late_gradients_of_matrices_are_those_of_autograd() -> None:
    inputs = [torch.randn(rows, 6, dtype=torch.float64, requires_grad=True) for rows in (4, 9)]
    weights = [torch.randn(rows, 6, dtype=torch.float64, requires_grad=True) for rows in (3, 5)]
    wanted = torch.autograd.grad(
        sum((entry @ torch.cat(weights).T).sin().sum() for entry in inputs), [*inputs, *weights]
    )
    products = Products(torch.float64)
    found = torch.autograd.grad(sum(products(entry, *weights).sin().sum() for entry in inputs), inputs)
    assert all(weight.grad is None for weight in weights)
    products.spread()
    assert_same([*found, *(weight.grad for weight in weights)], wanted)
    # Nothing is left over, and what comes later is added.
    products.spread()
    products(inputs[0], *weights).sum().backward()
    products.spread()
    more = inputs[0].sum(0).expand_as(weights[1])
    assert_same([weights[1].grad], [wanted[3] + more])


def test_products_with_some_columns_add_up_to_the_whole() -> None:
    inputs, weight = torch.randn(4, 6, requires_grad=True), torch.randn(3, 6, requires_grad=True)
    wanted = torch.autograd.grad((inputs @ weight.T).sin().sum(), (inputs, weight))
    products = Products(torch.float32)
    first = products(inputs[:, :2], weight, columns=(0, 2))
    whole = products(inputs[:, 2:], weight, columns=(2, 6), added=first)
    (found,) = torch.autograd.grad(whole.sin().sum(), inputs)
    products.spread()
    torch.testing.assert_close((found, weight.grad), wanted)


def test_a_product_whose_result_is_known_has_the_gradient_of_one_that_is_made() -> None:
    inputs, weight = torch.randn(4, 6), torch.randn(3, 6, requires_grad=True)
    products = Products(torch.float32)
    products(inputs, weight, known=torch.zeros(4, 3)).backward(torch.ones(4, 3))
    products.spread()
    torch.testing.assert_close(weight.grad, torch.ones(4, 3).T @ inputs)
    assert not weight.grad.requires_grad
