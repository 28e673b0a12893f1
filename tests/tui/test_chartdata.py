"""What the big chart draws."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from eagle3_tui.chartdata import Drawn, by_time, csv_of, families, smoothed, stretches, svg_of, value_at, within

PALETTE = {"background": "#000000", "text": "#ffffff", "dim": "#888888", "line": "#444444"}


def test_steps_of_one_measure_share_a_chart_and_the_total_has_its_own() -> None:
    found = families(["train/loss", "train/loss_0", "train/loss_10", "train/loss_2", "train/accept_len", "own/a_1"])
    assert [(one.title, one.members) for one in found] == [
        ("train/loss", ("train/loss",)),
        ("train/loss by step", ("train/loss_0", "train/loss_2", "train/loss_10")),
        ("train/accept_len", ("train/accept_len",)),
        ("own/a_1", ("own/a_1",)),
    ]


def test_smoothing_begins_at_the_first_value_and_keeps_gaps() -> None:
    made = smoothed([(0, 5.0), (1, math.nan), (2, 5.0), (3, 8.0)], 0.9)
    assert made[0][1] == 5.0 and math.isnan(made[1][1]) and abs(made[2][1] - 5.0) < 1e-9 and 5.0 < made[3][1] < 8.0
    assert smoothed([(0, 1.0)], 0.0) == ((0, 1.0),)


def test_a_curve_is_cut_at_its_gaps_and_reduced_with_its_spikes() -> None:
    points = [(float(x), 100.0 if x == 5000 else math.nan if 7000 <= x < 8000 else 1.0) for x in range(10_000)]
    pieces = stretches(points, 50)
    assert len(pieces) == 2 and sum(map(len, pieces)) <= 100
    assert max(y for piece in pieces for _, y in piece) == 100.0


def test_a_logarithmic_axis_has_no_place_for_zero() -> None:
    assert stretches([(0, 1.0), (1, 0.0), (2, -1.0), (3, 2.0)], 10, log=True) == [[(0, 1.0)], [(3, 2.0)]]


def test_a_part_of_a_curve_runs_on_to_its_neighbours() -> None:
    points = [(float(x), 0.0) for x in range(10)]
    assert [x for x, _ in within(points, 3.5, 5.5)] == [3.0, 4.0, 5.0, 6.0]
    assert value_at(points, 3.6) == (4.0, 0.0) and value_at([], 1.0) is None


def test_steps_become_seconds_since_the_first() -> None:
    assert by_time([(10, 1.0), (15, 2.0), (20, 3.0), (30, 4.0)], [(10, 100.0), (20, 200.0)]) == (
        (0.0, 1.0), (50.0, 2.0), (100.0, 3.0), (100.0, 4.0),
    )  # fmt: skip


def test_files_of_a_chart_hold_its_points_and_obey_no_name() -> None:
    curves = (Drawn('<a> & "b"', ((0.0, 1.0), (1.0, math.nan), (2.0, 3.0))), Drawn("c", ()))
    assert csv_of(curves, "step").splitlines() == [
        "step,series,value", '0.0,"<a> & ""b""",1.0', '1.0,"<a> & ""b""",', '2.0,"<a> & ""b""",3.0',
    ]  # fmt: skip
    root = ElementTree.fromstring(svg_of("<t>", curves, "step", ("#ff0000",), PALETTE, log=False))
    assert sum(1 for node in root.iter() if node.tag.endswith("polyline")) == 2
    assert any(node.text == '<a> & "b"' for node in root.iter())
