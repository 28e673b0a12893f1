from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_tui import drawing

VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-1e6, 1e6)


def dots(rows: list[str]) -> set[tuple[int, int]]:
    """The raised dots of a braille picture as (column, row from the top)."""
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
    return {
        (2 * x + places[bit][0], 4 * y + places[bit][1])
        for y, row in enumerate(rows)
        for x, cell in enumerate(row)
        if cell != " "
        for bit in range(8)
        if (ord(cell) - 0x2800) >> bit & 1
    }


def test_a_bar_is_filled_to_its_share() -> None:
    assert drawing.bar(0.5, 10) == "█████░░░░░"
    assert drawing.bar(7.0, 4) == "████"
    assert drawing.bar(None, 4) == "░░░░"


def test_a_spike_in_ten_thousand_points_survives() -> None:
    points = [(float(x), 100.0 if x == 5_000 else 0.0) for x in range(10_000)]
    assert min(row for _, row in dots(drawing.curve(points, 20, 5))) == 0


def test_a_missing_stretch_stays_a_gap() -> None:
    points = [(float(x), math.nan if 40 <= x < 60 else 1.0) for x in range(100)]
    spans = drawing.columns_of(points, 100)
    assert all(span is None for span in spans[41:59])
    assert spans[10] is not None and spans[90] is not None


def test_sparse_points_are_joined() -> None:
    columns = {column for column, _ in dots(drawing.curve([(0.0, 0.0), (1.0, 1.0)], 10, 5))}
    assert columns == set(range(20))


def test_a_rising_line_rises() -> None:
    raised = dots(drawing.curve([(float(x), float(x)) for x in range(50)], 10, 5))
    by_column = {column: row for column, row in sorted(raised)}
    assert by_column[0] > by_column[10] > by_column[19]


def test_a_constant_is_drawn_in_the_middle() -> None:
    rows = drawing.curve([(0.0, 3.0), (1.0, 3.0)], 8, 3)
    assert rows[0].strip() == "" and rows[2].strip() == "" and rows[1].strip()


@pytest.mark.parametrize("values", [[0.0, 1.2e-308], [0.0, 5e-324], [-1.7e308, 0.0, 1.7e308]])
def test_values_nearer_or_further_apart_than_floats_can_scale_are_drawn(values: list[float]) -> None:
    rows = drawing.curve([(float(x), y) for x, y in enumerate(values)], 8, 3)
    assert rows[1].strip() and [len(row) for row in rows] == [8, 8, 8]
    assert len(drawing.spark(values, 8)) == len(values)


@given(st.lists(VALUES, max_size=60), st.integers(0, 30), st.integers(0, 8), st.booleans())
def test_a_curve_has_its_size_whatever_the_values(values: list[float], width: int, height: int, plain: bool) -> None:
    rows = drawing.curve([(float(x), y) for x, y in enumerate(values)], width, height, plain)
    assert len(rows) == height
    assert all(len(row) == width for row in rows)


@given(st.lists(VALUES, max_size=60), st.integers(0, 30))
def test_a_sparkline_is_never_wider_than_asked(values: list[float], width: int) -> None:
    assert len(drawing.spark(values, width)) <= width


def test_a_sparkline_shows_lowest_and_highest() -> None:
    assert drawing.spark([1.0, 2.0, 3.0], 3) == "▁▅█"
    assert drawing.spark([1.0, math.nan, 3.0], 3) == "▁ █"
