"""A ratio of two trainers, paired by prompt and seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def paired(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("paired_ratio")


def table(seed: int, share: float, prompts: int = 60) -> list[list[tuple[int, int]]]:
    """Three seeds: prompts of very different difficulty, each accepting about ``share`` of what it could."""
    draw = random.Random(seed)
    ease = random.Random("prompts").choices(range(1, 60), k=prompts)
    return [[(40, round(share * each) + draw.randrange(2)) for each in ease] for _ in range(3)]


def test_a_long_answer_weighs_as_many_steps_as_it_has(paired) -> None:
    assert paired.length([[(10, 10), (90, 0)]]) == pytest.approx(1.1)
    assert paired.length([[(10, 10)], [(90, 0)]]) == pytest.approx(1.1)


def test_a_trainer_against_itself_has_a_ratio_of_exactly_one(paired) -> None:
    same = table(1, 0.5)
    found = paired.paired_ratio(same, same, 200, 0)
    assert (found.mean, found.low, found.high, found.prompts) == (1.0, 1.0, 1.0, 60)


def test_pairing_tells_apart_what_the_spread_of_the_prompts_alone_would_hide(paired) -> None:
    better, worse = table(1, 0.6), table(2, 0.5)
    found = paired.paired_ratio(better, worse, 500, 0)
    alone = paired.paired_ratio(better, [[(40, 20)] * 60] * 3, 500, 0)
    assert 1.0 < found.low <= found.mean <= found.high
    assert found.high - found.low < (alone.high - alone.low) / 2
    turned = paired.paired_ratio(worse, better, 500, 0)
    assert turned.high < 1.0 and turned.mean == pytest.approx(1 / found.mean)


def test_one_lucky_seed_of_three_widens_the_interval_over_one(paired) -> None:
    peer = table(1, 0.5)
    lucky = [table(2, 0.9)[0], *table(3, 0.45)[1:]]
    found = paired.paired_ratio(lucky, peer, 500, 0)
    assert found.low < 1.0 < found.mean < found.high


@pytest.mark.parametrize(
    "peer",
    [[], [[(1, 1)]], [[(1, 1), (1, 1)], [(1, 1)]], [[(1, 1)] * 2] * 3],
    ids=["none", "fewer prompts", "ragged", "more seeds"],
)
def test_tables_that_cannot_be_paired_are_refused(paired, peer) -> None:
    with pytest.raises(ValueError, match="same seeds and prompts"):
        paired.paired_ratio([[(1, 1), (1, 0)]], peer, 10, 0)


def test_empty_tables_are_refused(paired) -> None:
    with pytest.raises(ValueError, match="same seeds and prompts"):
        paired.paired_ratio([], [], 10, 0)
