from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eagle3_kernels import count, right_rows  # noqa: E402

pytestmark = pytest.mark.torch

STEPS, ROWS = 4, 200


@pytest.fixture
def rows():
    """(right, valid, losses, alphas) of random rows, each used up to some step."""
    generator = torch.Generator().manual_seed(2)
    depth = torch.randint(0, STEPS + 1, (ROWS,), generator=generator)
    valid = torch.arange(STEPS)[:, None] < depth
    alphas = torch.rand(STEPS, ROWS, generator=generator)
    right = (torch.rand(STEPS, ROWS, generator=generator) < alphas) & valid
    return right, valid, torch.rand(STEPS, ROWS, generator=generator) * valid, alphas * valid


def table(*steps: str) -> torch.Tensor:
    return torch.tensor([[letter == "x" for letter in step] for step in steps])


def test_right_is_measured_against_the_full_vocabularys_choice_of_the_same_position() -> None:
    target_ids = torch.tensor([3, 5, 9])
    choices = torch.tensor([[0, 1, 2], [1, 2, 0]])
    truth = torch.tensor([3, 5, 8])
    right = right_rows(choices, table("xxx", "xx."), target_ids, truth)
    # Step 1 of row m is judged by the truth of row m + 1; nothing drafts id 8, which the vocabulary lacks.
    assert right.tolist() == [[True, True, False], [True, False, False]]


def test_figures_follow_their_definitions() -> None:
    valid = table("xxxxxx", "xxxxx.", "xxxx..")
    right = table("x.xx..", "xxx...", "xx....") & valid
    ones = torch.ones(3, 6) * valid
    values = count(right, valid, ones, ones).metrics("eval", torch.tensor([1.0, 0.5, 0.25]))
    assert values["eval/acc_0"] == pytest.approx(3 / 6)
    assert values["eval/acc_1"] == pytest.approx(3 / 5)
    assert values["eval/cond_acc_1"] == pytest.approx(2 / 3)
    assert values["eval/cond_acc_2"] == pytest.approx(1 / 2)
    assert values["eval/accept_len"] == pytest.approx(1 + 3 / 6 + 2 / 5 + 1 / 4)
    assert values["eval/loss"] == pytest.approx(1.75)


def test_every_figure_is_the_plain_count_of_its_rows(rows) -> None:
    right, valid, losses, alphas = rows
    found = count(*rows).metrics("eval", torch.tensor([1.0, 0.8, 0.6, 0.4]))
    greedy, sampled, total = 1.0, 1.0, 0.0
    for step in range(STEPS):
        used = [row for row in range(ROWS) if valid[step, row]]
        chain = [row for row in used if all(right[: step + 1, row])]
        reached = [row for row in used if all(right[:step, row])]
        assert found[f"eval/acc_{step}"] == pytest.approx(sum(bool(right[step, row]) for row in used) / len(used))
        assert found[f"eval/cond_acc_{step}"] == pytest.approx(len(chain) / len(reached))
        assert found[f"eval/alpha_{step}"] == pytest.approx(float(alphas[step, used].mean()), abs=1e-6)
        assert found[f"eval/loss_{step}"] == pytest.approx(float(losses[step, used].mean()), abs=1e-6)
        total += (1.0, 0.8, 0.6, 0.4)[step] * found[f"eval/loss_{step}"]
        greedy += len(chain) / len(used)
        sampled += float(alphas[: step + 1, used].double().prod(0).mean())
    assert found["eval/loss"] == pytest.approx(total)
    assert found["eval/accept_len"] == pytest.approx(greedy)
    assert found["eval/expected_len"] == pytest.approx(sampled, abs=1e-6)


def test_counts_of_two_halves_add_up_to_those_of_the_whole(rows) -> None:
    halves = [count(*(entry[:, half] for entry in rows)) for half in (slice(0, 90), slice(90, None))]
    whole, parts = count(*rows), halves[0] + halves[1]
    weights = torch.ones(STEPS)
    assert parts.metrics("eval", weights) == pytest.approx(whole.metrics("eval", weights), rel=1e-12)


def test_the_expected_length_is_the_mean_of_simulated_chains() -> None:
    generator = torch.Generator().manual_seed(7)
    alphas, valid = torch.rand(STEPS, 50, generator=generator), torch.ones(STEPS, 50, dtype=torch.bool)
    expected = count(valid, valid, alphas, alphas).metrics("eval", torch.ones(STEPS))["eval/expected_len"]
    accepted = torch.rand(4000, STEPS, 50, generator=generator) < alphas
    lengths = 1.0 + accepted.long().cumprod(1).sum(1).double()
    error = float(lengths.std(0).square().sum().sqrt() / 50 / 4000**0.5)
    assert abs(float(lengths.mean()) - expected) < 3 * error


def test_counting_fetches_nothing_before_the_figures_are_asked_for() -> None:
    """Tensors without data stand for a device that must not be waited for: reading one of them fails."""
    valid = torch.ones(STEPS, ROWS, dtype=torch.bool, device="meta")
    values = torch.ones(STEPS, ROWS, device="meta")
    right = right_rows(valid.long(), valid, torch.ones(9, dtype=torch.long, device="meta"), valid[0].long())
    total = count(right, valid, values, values) + count(right, valid, values, values)
    with pytest.raises(NotImplementedError, match="meta"):
        total.metrics("eval", torch.ones(STEPS))
