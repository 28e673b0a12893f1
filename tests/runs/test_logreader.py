"""Blocks, searches and times of a stored log, of whatever length and with whatever holes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.runs.loglines import LogLine
from eagle3_backend.runs.logreader import BUDGET, Matcher, after, before, place_of
from eagle3_backend.runs.segments import Segments


class Made:
    """A log whose bytes are made when they are read: ``width`` bytes a line, ``count`` lines."""

    def __init__(self, count: int, width: int = 100, text=lambda number: f"line {number}") -> None:
        self.count, self.width, self.text = count, width, text
        self.bytes_read = 0

    def parts(self):
        return [(0, self.count * self.width)]

    def read(self, offset, length):
        first, last = offset // self.width, min(self.count, (offset + length) // self.width + 1)
        data = b"".join(
            self.text(number).ljust(self.width - 1)[: self.width - 1].encode() + b"\n" for number in range(first, last)
        )
        skip = offset - first * self.width
        self.bytes_read += length
        return data[skip : skip + length]


@pytest.fixture
def stored(tmp_path):
    """A log on disk: ``stored(data, offset=0)`` writes it."""
    segments = Segments(tmp_path / "log")

    def write(data: bytes, offset: int = 0) -> Segments:
        segments.write("g1", offset, data)
        return segments

    return write


def texts(block):
    return [line.text for line in block.lines]


def test_a_gigabyte_is_opened_at_its_end_and_read_backwards_in_blocks():
    log = Made(10_000_000)
    block = before(log, None, 400)
    assert texts(block)[-1] == "line 9999999" and len(block.lines) == 400 and block.last and not block.first
    earlier = before(log, block.start, 400)
    assert texts(earlier)[-1] == "line 9999599" and earlier.end == block.start
    assert log.bytes_read < 500_000


def test_a_log_that_stops_in_the_middle_of_a_character_shows_it_once_it_is_whole(stored):
    whole, at = "done ✓\n".encode(), 0
    for end, text, kind in ((7, "done", "partial"), (len(whole), "done ✓", "")):
        segments, at = stored(whole[at:end], at), end
        for block in (after(segments, 0, 9), before(segments, None, 9)):
            assert [(line.text, line.kind) for line in block.lines] == [(text, kind)]


def test_blocks_from_both_ends_hold_every_line_once():
    chooser = random.Random(3)
    lines = [("x" * chooser.randint(0, 300) + str(number)).encode() for number in range(5000)]
    log = Made(1)
    data = b"\n".join(lines) + b"\nhalf"
    log.parts = lambda: [(0, len(data))]
    log.read = lambda offset, length: data[offset : offset + length]
    forward, at = [], 0
    while True:
        block = after(log, at, 333)
        forward += block.lines
        at = block.end
        if block.last:
            break
    backward, at = [], None
    while at != 0:
        block = before(log, at, 333)
        backward[:0] = block.lines
        at = block.start
    assert forward == backward
    assert [line.text for line in forward[:-1]] == [line.decode()[:2000] for line in lines]
    assert forward[-1] == LogLine(len(data) - 4, len(data), "half", "partial")
    assert all(one.end == other.offset for one, other in pairwise(forward))


def test_a_stretch_that_is_not_stored_is_one_line_that_says_how_much(stored):
    stored(b"a\nb\n")
    log = stored(b"tail of a line\ny\nz\n", 1000)
    block = before(log, None, 10)
    assert block.lines == (
        LogLine(4, 1015, "", "skipped"), LogLine(1015, 1017, "y"), LogLine(1017, 1019, "z"),
    )  # fmt: skip
    assert texts(before(log, block.start, 10)) == ["a", "b"]
    assert texts(after(log, 0, 10)) == ["a", "b"]
    assert after(log, 4, 10).lines == (LogLine(4, 1000, "", "skipped"),)
    assert after(log, 1000, 10).last


def test_what_is_before_the_stored_tail_is_told(stored):
    log = stored(b"rest\nlast\n", 5_000_000)
    assert before(log, None, 10).lines[0] == LogLine(0, 5_000_005, "", "skipped")


def test_an_endless_line_is_passed_in_bounded_steps(stored):
    log = stored(b"first\n" + b"y" * (3 * BUDGET) + b"\nlast\n")
    block = before(log, before(log, None, 2).start, 1)
    assert [line.text[:5] for line in block.lines] == ["yyyyy"]
    assert block.lines[0].end - block.lines[0].offset == 3 * BUDGET + 1
    assert texts(after(log, 0, 1)) == ["first"]
    forward = after(log, after(log, 0, 3).end, 3)
    assert [line.text[:5] for line in forward.lines] == ["yyyyy", "last"]


def test_matching_lines_are_found_in_both_directions():
    log = Made(300_000, text=lambda number: f"{'ERROR' if number % 50_000 == 7 else 'info'} line {number}")
    match, found, at = Matcher("ERROR"), [], None
    while at != 0:
        block = before(log, at, 1, match)
        found += texts(block)
        at = block.start
    assert found == [f"ERROR line {number}" for number in (250_007, 200_007, 150_007, 100_007, 50_007, 7)]
    found, at = [], 0
    while True:
        block = after(log, at, 1, match)
        found += texts(block)
        at = block.end
        if block.last:
            break
    assert found[0] == "ERROR line 7" and len(found) == 6


def test_small_letters_match_both_and_a_capital_only_itself():
    assert Matcher("warn")("WARN x") and not Matcher("Warn")("WARN x")


def test_what_is_seen_is_matched_not_the_colours_in_between(stored):
    log = stored(b"\x1b[32mINFO\x1b[0m started\n50%\rdone in 3s\n")
    assert len(before(log, None, 9, Matcher("^done in")).lines) == 1
    assert len(before(log, None, 9, Matcher("info started")).lines) == 1


def test_a_bad_pattern_is_a_finding():
    with pytest.raises(FindingError) as refused:
        Matcher("(")
    assert refused.value.findings[0].code == "pattern_invalid"


def test_a_line_is_found_by_its_time_with_few_bytes_read():
    def at(number):
        return f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d} step {number}"

    log = Made(60_000, text=at)
    place = place_of(log, "12:00")
    assert texts(after(log, place, 1)) == ["12:00:00 step 43200"]
    assert log.bytes_read < 4_000_000
    # The newest 23:59 was before midnight: the clock of the last line is 16:39:59.
    log = Made(100_000, text=at)
    assert texts(after(log, place_of(log, "23:59:30"), 1)) == ["23:59:30 step 86370"]


def test_a_day_can_be_named_where_the_log_names_days():
    log = Made(50_000, text=lambda number: f"2026-11-{1 + number // 2000:02d} 10:{number % 60:02d}:00 x {number}")
    assert texts(after(log, place_of(log, "2026-11-05 10:00"), 1)) == ["2026-11-05 10:20:00 x 8000"]


@pytest.mark.parametrize(("clock", "code"), [("noon", "time_invalid"), ("10:00", "time_absent")])
def test_a_time_that_cannot_be_found_is_a_finding(clock, code):
    with pytest.raises(FindingError) as refused:
        place_of(Made(1000), clock)
    assert refused.value.findings[0].code == code
