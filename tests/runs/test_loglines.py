"""Log bytes to display lines: remote text, whatever it holds and however it is cut."""

from __future__ import annotations

import random

from eagle3_backend.runs.loglines import MAX_CHARACTERS, MAX_HALF, LogLine, LogLines, display, progress_of


def render(raw: bytes) -> list[str]:
    lines = LogLines()
    done = lines.feed(raw)
    return [*done, lines.partial] if lines.partial else done


def test_markup_is_text():
    assert render(b"[/] [INST] Hello [/INST]\n") == ["[/] [INST] Hello [/INST]"]


def test_progress_frames_collapse_to_the_last_that_shows_anything():
    raw = (
        b"\x1b[32mINFO\x1b[0m start\n\rshards:   0%| 0/3\rshards: 100%| 3/3\n"
        b"\x1b[2K\r\x1b[34mepoch 1\x1b[0m done\r\nlast line without newline"
    )
    assert render(raw) == ["INFO start", "shards: 100%| 3/3", "epoch 1 done", "last line without newline"]


def test_titles_links_and_control_characters_are_dropped():
    assert render(b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\\x00\x08c\x9b\td\n") == ["abc�    d"]


def test_invalid_utf8_becomes_replacement_characters():
    assert render(b"a\xffb\n\xe2\x9c\n") == ["a�b", "�"]


def test_chunks_do_not_matter():
    raw = "größe ✓\r\x1b[31mrot\x1b[0m 🙂\r\nzwei\n\n\rdrei\r".encode() * 20
    whole = render(raw)
    chooser = random.Random(5)
    for _ in range(20):
        lines = LogLines()
        got: list[str] = []
        at = 0
        while at < len(raw):
            size = chooser.randint(1, 9)
            got += lines.feed(raw[at : at + size])
            at += size
        assert [*got, lines.partial] == whole


def test_a_line_of_ten_megabytes_is_bounded_and_counted():
    lines = LogLines()
    for _ in range(40):
        assert lines.feed(b"x" * 256 * 1024) == []
    (line,) = lines.feed(b"\n")
    assert line == "x" * MAX_CHARACTERS + f"…+{40 * 256 * 1024 - MAX_CHARACTERS}"


def test_an_empty_line_stays_a_line():
    assert render(b"a\n\nb\n") == ["a", "", "b"]


def test_six_thousand_lines_in_a_burst_all_come():
    raw = b"".join(b"step %d\n" % step for step in range(6000))
    assert LogLines().feed(raw)[::5999] == ["step 0", "step 5999"]


def test_lines_know_their_bytes():
    lines = LogLines(offset=100)
    assert lines.take("é\nab\r\n".encode()) == [LogLine(100, 103, "é"), LogLine(103, 107, "ab")]
    lines.take(b"half")
    assert lines.rest() == [LogLine(107, 111, "half", "partial")]


def test_colours_are_kept_when_asked_for_and_nothing_else_is():
    assert display(b"\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;t\x07x", colours=True) == "\x1b[1;31mred\x1b[0m x"


def test_a_half_character_waits_for_its_other_half():
    lines = LogLines()
    lines.feed("naïve"[:2].encode() + "ï".encode()[:1])
    assert lines.partial == "na"


def test_a_bar_that_draws_for_days_stays_small():
    lines = LogLines()
    frame = b"\rshards:  50%|#####     | 5/10 [00:06<00:06, 1.0s/it]"
    for _ in range(3 * MAX_HALF // (100 * len(frame))):
        lines.feed(frame * 100)
    assert lines.partial == frame[1:].decode()
    lines.feed(b"\r")
    assert lines.partial == frame[1:].decode()
    assert lines.feed(b"done\n") == ["done"]
    assert len(lines._half) == 0


def test_a_bar_is_read_as_progress():
    assert progress_of("Loading shards: 100%|###| 3/3 [00:06<00:00,  2.0s/it]") == ("Loading shards", 3, 3)
    assert progress_of(" 12%|# | 1.2k/10.0k [00:01<00:09]") == ("", 1200, 10_000)
    assert progress_of("step 12 of 100 at 12% of 3/4") is None
