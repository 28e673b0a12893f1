from __future__ import annotations

import random

import pytest

from eagle3_backend.engines.statistics import (
    acceptance_interval,
    bootstrap,
    nested_bootstrap,
    percentile_intervals,
    repeated_share,
    speed_ratio_interval,
)


def test_the_mean_is_that_of_the_pooled_counts_and_not_of_the_prompts() -> None:
    interval = acceptance_interval([(90, 100), (0, 10)], resamples=200, seed=1)
    assert interval.mean == pytest.approx(1 + 90 / 110)
    assert interval.prompts == 2


def test_the_interval_encloses_the_mean_and_repeats_with_the_seed() -> None:
    draw = random.Random(3)
    rows = [(draw.randrange(60), 40) for _ in range(60)]
    first = acceptance_interval(rows, resamples=500, seed=5)
    assert first.low < first.mean < first.high
    assert first == acceptance_interval(rows, resamples=500, seed=5)


def test_a_95_percent_interval_covers_the_truth_about_that_often() -> None:
    draw = random.Random(11)
    covered = 0
    for trial in range(200):
        rows = [(sum(draw.random() < 0.4 for _ in range(30)), 30) for _ in range(40)]
        interval = acceptance_interval(rows, resamples=200, seed=trial)
        covered += interval.low <= 1.4 <= interval.high
    assert 175 <= covered <= 199


def test_prompts_that_all_agree_leave_no_width() -> None:
    interval = acceptance_interval([(10, 20)] * 8, resamples=100, seed=0)
    assert (interval.low, interval.mean, interval.high) == (1.5, 1.5, 1.5)


def test_without_prompts_there_is_no_interval() -> None:
    with pytest.raises(ValueError, match="no rows"):
        bootstrap([], sum, resamples=10, seed=0)


def test_pairing_takes_the_spread_between_prompts_out_of_the_speed_ratio() -> None:
    draw = random.Random(2)
    rows = []
    for _ in range(12):
        seconds = draw.uniform(1, 20)
        rows.append((64.0, seconds / 1.5, 64.0, seconds))
    interval = speed_ratio_interval(rows, resamples=300, seed=0)
    assert interval.low == pytest.approx(1.5)
    assert interval.high == pytest.approx(1.5)


def test_a_loop_repeats_its_4grams_and_fresh_text_does_not() -> None:
    assert repeated_share(range(64)) == 0.0
    assert repeated_share([1, 2, 3] * 20) > 0.9
    assert repeated_share([1, 2]) == 0.0


def test_rows_of_one_group_are_no_independent_evidence() -> None:
    """Two rounds that differ, of many requests each: the interval spans both; the rows alone would deny that."""
    rounds = [[(10.0, 10.0)] * 20, [(20.0, 10.0)] * 20]
    nested = nested_bootstrap(rounds, lambda sums: sums[0] / sums[1], 400, 1)
    flat = bootstrap([row for group in rounds for row in group], lambda sums: sums[0] / sums[1], 400, 1)
    assert (nested.low, nested.mean, nested.high) == (1.0, 1.5, 2.0)
    assert 1.2 < flat.low < flat.high < 1.8
    assert nested.prompts == 40


def test_groups_that_agree_still_leave_the_spread_between_their_rows() -> None:
    rounds = [[(10.0, 10.0), (20.0, 10.0)], [(20.0, 10.0), (10.0, 10.0)]]
    nested = nested_bootstrap(rounds, lambda sums: sums[0] / sums[1], 400, 1)
    assert nested.low < 1.5 < nested.high
    alone = [(1.0, 2.0), (3.0, 2.0), (5.0, 1.0)]
    of = lambda sums: sums[0] / sums[1]  # noqa: E731
    assert nested_bootstrap([[row] for row in alone], of, 100, 3) == bootstrap(alone, of, 100, 3)
    with pytest.raises(ValueError, match="no rows"):
        nested_bootstrap([[], []], lambda sums: sums[0], 10, 1)


def test_a_percentile_is_a_value_that_was_seen_and_its_interval_encloses_it() -> None:
    groups = [[float(10 * number + place) for place in range(10)] for number in range(10)]
    median, last = percentile_intervals(groups, (0.5, 0.99), 200, 1)
    assert (median.mean, last.mean) == (49.0, 98.0)
    assert median.low <= 49.0 <= median.high and median.low < median.high
    assert median.prompts == 10


def test_a_percentile_beyond_the_values_is_the_largest_one() -> None:
    (last,) = percentile_intervals([[1.0], [5.0], [3.0]], (0.99,), 100, 1)
    assert last.mean == 5.0


def test_values_of_one_prompt_are_drawn_together() -> None:
    """Many values of two prompts are evidence of two prompts: the interval spans both."""
    (median,) = percentile_intervals([[1.0] * 500, [2.0] * 500], (0.5,), 200, 1)
    assert (median.low, median.high) == (1.0, 2.0)


def test_without_values_there_is_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile_intervals([[], []], (0.5,), 10, 1)
