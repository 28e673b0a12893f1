"""The newest hour of a host's gauges."""

from __future__ import annotations

import math

from eagle3_backend.control.gauges import KEPT_COLUMNS, GaugeHistory
from eagle3_backend.control.snapshot import Gpu, Machine


def test_gauges_are_series_by_time_and_unknown_is_a_gap():
    history = GaugeHistory()
    history.add(1.0, Machine(cpu_percent=10.0, gpus=(Gpu(0, "x", None, 2**30, None, None, None),)))
    series = history.series()
    assert series["cpu percent"] == ((1.0, 10.0),)
    assert math.isnan(series["gpu percent/0"][0][1]) and series["gpu memory GiB/0"] == ((1.0, 1.0),)
    assert history.series() is series


def test_a_day_of_samples_stays_small():
    history = GaugeHistory()
    for second in range(20_000):
        history.add(float(second), Machine(cpu_percent=float(second % 7)))
    points = history.series()["cpu percent"]
    assert len(points) <= 4 * KEPT_COLUMNS and points[0][0] >= 20_000 - 3600 - KEPT_COLUMNS * 4
