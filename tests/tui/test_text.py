from __future__ import annotations

import math

import pytest
from rich.cells import cell_len

from eagle3_tui import text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("[/] [bold]x[/bold]", "[/] [bold]x[/bold]"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;aGVsbG8=\x1b\\after", "after"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hhome", "home"),
        ("bell\x07", "bell␇"),
        ("null\x00", "null␀"),
        ("tab\tstop", "tab    stop"),
        ("a\u202eb\u202cc", "abc"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("c1\x9b31m", "c131m"),
        ("שלום", "שלום"),
        ("日本語", "日本語"),
    ],
)
def test_what_a_terminal_would_obey_is_dropped_or_made_visible(raw: str, shown: str) -> None:
    assert text.visible(raw) == shown


def test_an_unterminated_title_sequence_does_not_reach_the_terminal() -> None:
    assert "\x1b" not in text.visible("\x1b]0;never ends")


def test_a_stack_of_combining_marks_is_cut() -> None:
    assert len(text.visible("e" + "\u0301" * 500)) == 3


def test_a_long_line_says_how_much_was_left_out() -> None:
    assert text.cut("x" * 2500) == "x" * 2000 + "…+500"


def test_carriage_returns_leave_the_last_frame() -> None:
    assert text.last_frame("10%\r50%\r90%") == "90%"
    assert text.last_frame("done\r") == "done"


def test_colours_are_told_apart_from_other_sequences() -> None:
    assert text.split_colours("a\x1b[31mb\x1b[0mc") == [("", "a"), ("31", "b"), ("0", "c")]


@pytest.mark.parametrize("width", range(12))
@pytest.mark.parametrize("words", ["", "short", "a rather long text", "日本語日本語日本語", "é́"])
def test_fit_fills_its_width_exactly(words: str, width: int) -> None:
    assert cell_len(text.fit(words, width)) == width


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (41, "41s"), (60, "1m"), (750, "12m30s"), (6120, "1h42m"), (273_600, "3d4h"), (None, "-"),
     (math.nan, "-")],
)  # fmt: skip
def test_spans_name_their_two_largest_units(seconds: float | None, words: str) -> None:
    assert text.span(seconds) == words


def test_durations_count_past_a_day() -> None:
    assert text.clock_span(100) == "00:01:40"
    assert text.clock_span(90_000) == "25:00:00"


@pytest.mark.parametrize(
    ("value", "words"),
    [(1.8421, "1.842"), (97.53, "97.5"), (18300, "18300"), (41_200.0, "41.2k"), (3.1e6, "3.1M"), (8.1e-5, "8.1e-05"),
     (0.0, "0"), (None, "-"), (math.nan, "nan"), (-math.inf, "-inf")],
)  # fmt: skip
def test_numbers_keep_about_four_figures(value: float | None, words: str) -> None:
    assert text.number(value) == words


def test_bytes_use_decimal_units() -> None:
    assert text.size(512) == "512 B"
    assert text.size(9_227_469) == "9.2 MB"
    assert text.size(71 * 10**9) == "71 GB"
    assert text.size(None) == "-"
