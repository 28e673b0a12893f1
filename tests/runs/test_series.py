"""Reducing series for charts."""

from __future__ import annotations

import math
import random

from eagle3_backend.runs.series import downsample, join_attempts


def test_short_series_stay_as_they_are():
    points = [(0.0, 1.0), (1.0, math.nan), (2.0, 3.0)]
    assert downsample(points, 10) == points


def test_at_most_two_points_a_column_and_spikes_survive():
    chooser = random.Random(2)
    points = [(float(step), chooser.random()) for step in range(10_000)]
    points[1234] = (1234.0, 99.0)
    points[4321] = (4321.0, -99.0)
    small = downsample(points, 60)
    assert len(small) <= 120
    assert (1234.0, 99.0) in small and (4321.0, -99.0) in small
    assert small == sorted(small)


def test_a_column_without_numbers_is_a_gap():
    points = [(float(step), math.nan if 300 <= step < 600 else 1.0) for step in range(1000)]
    small = downsample(points, 10)
    gaps = [step for step, value in small if math.isnan(value)]
    assert gaps and all(300 <= step < 600 for step in gaps)


def test_infinity_is_never_an_extreme():
    points = [(float(step), math.inf if step == 5 else 1.0) for step in range(100)]
    assert all(value == 1.0 for _, value in downsample(points, 10))


def test_steps_that_are_all_equal_are_one_column():
    assert len(downsample([(3.0, float(value)) for value in range(100)], 10)) == 2


def test_a_resumed_attempt_replaces_what_it_did_again():
    first = [(0.0, 5.0), (10.0, 4.0), (20.0, 3.0)]
    second = [(10.0, 4.1), (20.0, 3.1), (30.0, 2.0)]
    assert join_attempts([first, [], second]) == [(0.0, 5.0), (10.0, 4.1), (20.0, 3.1), (30.0, 2.0)]
