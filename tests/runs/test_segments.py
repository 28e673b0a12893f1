"""Log bytes as segment files whose names and lengths are the only record of what is stored."""

from __future__ import annotations

import random

from eagle3_backend.runs.segments import Segments


def test_nothing_stored_has_no_end(tmp_path):
    segments = Segments(tmp_path / "log")
    assert segments.end() is None and segments.tail(10) == (0, b"") and segments.generation() == ""


def test_start_and_length_are_the_offset(tmp_path):
    segments = Segments(tmp_path / "log")
    segments.write("g", 100, b"abc")
    segments.write("g", 103, b"\xff\x00def")
    assert segments.end() == 108
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["g-100"]
    assert segments.read(101, 4) == b"bc\xff\x00"


def test_a_skipped_stretch_starts_a_segment_and_joins_when_it_is_fetched(tmp_path):
    segments = Segments(tmp_path / "log")
    segments.write("g", 0, b"0123")
    segments.write("g", 10, b"abcd")
    assert segments.parts() == [(0, 4), (10, 4)]
    assert segments.tail(100) == (10, b"abcd")
    segments.write("g", 4, b"456")
    assert segments.read(0, 100) == b"0123456"
    segments.write("g", 7, b"789")
    assert segments.parts() == [(0, 14)]
    assert segments.read(0, 100) == b"0123456789abcd"


def test_restart_keeps_only_its_generation(tmp_path):
    segments = Segments(tmp_path / "log")
    segments.write("one", 0, b"old")
    segments.restart("two")
    assert segments.end() is None
    segments.write("two", 0, b"new")
    segments.restart("two")
    assert segments.read(0, 10) == b"new" and segments.generation() == "two"


def test_several_programs_writing_the_same_log_in_any_order_agree(tmp_path):
    chooser = random.Random(3)
    whole = chooser.randbytes(5000)
    programs = [Segments(tmp_path / "log") for _ in range(3)]
    ends = [0, 0, 0]
    while min(ends) < len(whole):
        number = chooser.randrange(3)
        size = chooser.randint(1, 400)
        programs[number].write("g", ends[number], whole[ends[number] : ends[number] + size])
        ends[number] = min(len(whole), ends[number] + size)
    assert programs[0].parts() == [(0, 5000)] and programs[0].read(0, 9999) == whole


def test_stretches_in_random_order_end_as_one_segment(tmp_path):
    chooser = random.Random(4)
    whole = chooser.randbytes(3000)
    stretches = [(start, whole[start : start + 100]) for start in range(0, 3000, 100)]
    chooser.shuffle(stretches)
    segments = Segments(tmp_path / "log")
    for start, data in stretches:
        segments.write("g", start, data)
    assert segments.parts() == [(0, 3000)] and segments.read(0, 9999) == whole
