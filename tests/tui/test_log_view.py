"""The log view: anywhere in a long log with a bounded part of it in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.commands import Logs, ReadLog
from eagle3_backend.control.snapshot import LogView
from eagle3_backend.runs.loglines import LogLine
from eagle3_backend.runs.logreader import LogBlock, before
from eagle3_tui.logwindow import MAX_LINES, LogWindow
from eagle3_tui.mock import MockSource
from eagle3_tui.mocklog import WIDTH, MockLog
from eagle3_tui.widgets import logpane
from eagle3_tui.widgets.log import LogTail
from eagle3_tui.widgets.logtext import most_cells

NUMBERED = 10_000_000


class Long(MockSource):
    """A gigabyte of numbered lines; every 300 000th is an error."""

    def log(self) -> MockLog:
        return MockLog(NUMBERED, lambda number: f"{'ERROR' if number % 300_000 == 7 else 'info'} line {number}")


async def opened(panel) -> LogTail:
    await panel.press("tab")
    log = panel.app.screen.focused
    assert isinstance(log, LogTail)
    return log


async def wait(panel, times: int = 4) -> None:
    for _ in range(times):
        await panel.settle()


async def test_a_gigabyte_is_read_by_places_and_holds_a_bounded_part(show) -> None:
    async with show(source=Long()) as panel:
        log = await opened(panel)
        assert f"line {NUMBERED - 1}" in panel.text()
        await panel.press("g")
        await wait(panel)
        assert "info line 0 " in panel.text() and not log.follow
        await panel.press(*["pagedown"] * 12)
        await wait(panel)
        assert len(log.window.lines) <= MAX_LINES
        await panel.press("G")
        await wait(panel)
        assert log.follow and f"line {NUMBERED - 1}" in panel.text()


async def test_scrolling_up_goes_on_before_the_snapshot(show) -> None:
    async with show(source=Long()) as panel:
        log = await opened(panel)
        for _ in range(40):
            await panel.press("pageup")
        await wait(panel)
        top = log.window.lines[log.line_at(log.scroll_offset.y)]
        assert len(log.window.lines) > 400
        assert top.text in panel.text()
        numbers = [int(line.text.split()[-1]) for line in log.window.lines]
        assert numbers == list(range(numbers[0], NUMBERED))


async def type_line(panel, key: str, text: str) -> None:
    await panel.press(key)
    await wait(panel, 2)
    panel.app.screen.query_one("#prompt Input").value = text
    await panel.press("enter")
    await wait(panel)


async def test_a_search_goes_through_the_whole_log_and_n_goes_on(show) -> None:
    async with show(source=Long()) as panel:
        log = await opened(panel)
        await type_line(panel, "slash", "error line")
        assert "ERROR line 9900007" in panel.text() and "/error line" in panel.text()
        await panel.press("N")
        await wait(panel)
        assert "ERROR line 9600007" in panel.text()
        await panel.press("n")
        await wait(panel)
        assert "ERROR line 9900007" in panel.text()
        await panel.press("escape")
        assert log.found is None


async def test_what_a_search_finds_is_marked(show) -> None:
    async with show(source=Long()) as panel:
        log = await opened(panel)
        await type_line(panel, "slash", f"line {NUMBERED - 3}")
        strips = [log.render_line(y) for y in range(log.room.height)]
        marked = [segment.text for strip in strips for segment in strip if segment.style and segment.style.reverse]
        assert marked == [f"line {NUMBERED - 3}"]


async def test_a_filter_shows_only_lines_that_match_from_anywhere(show) -> None:
    async with show(source=Long()) as panel:
        await opened(panel)
        await type_line(panel, "ampersand", "ERROR")
        told = panel.text()
        assert "ERROR line 9900007" in told and "info line" not in told
        assert "only /ERROR/" in told and "hits" in told
        await panel.press("escape")
        await wait(panel)
        assert f"info line {NUMBERED - 1}" in panel.text()


async def test_errors_are_jumped_to(show) -> None:
    async with show(source=Long()) as panel:
        await opened(panel)
        await panel.press("left_curly_bracket")
        await wait(panel)
        assert "ERROR line 9900007" in panel.text()
        await panel.press("right_curly_bracket")
        await wait(panel)
        assert "nothing further on" in panel.text()


async def test_a_faulty_pattern_is_told(show) -> None:
    async with show("train", (120, 40)) as panel:
        await opened(panel)
        await type_line(panel, "slash", "(")
        assert "no regular expression" in panel.text()


async def test_a_line_can_be_left_without_doing_anything(show) -> None:
    async with show("train", (120, 40)) as panel:
        log = await opened(panel)
        await panel.press("slash", "q", "x", "escape")
        await wait(panel, 2)
        assert panel.app.screen.focused is log and log.found is None
        assert "q quit" in panel.lines()[-1]


async def test_a_time_is_jumped_to(show) -> None:
    async with show("train", (120, 40)) as panel:
        log = await opened(panel)
        await type_line(panel, "T", "13:30")
        assert "13:30:00 step=8645" in panel.text() and not log.follow
        await type_line(panel, "T", "noon")
        assert "no time" in panel.text()


async def test_wrapped_lines_are_whole_and_stay_in_their_order(show) -> None:
    line = "begin " + "word " * 60 + "end"
    lines = tuple(LogLine(at * 400, (at + 1) * 400, f"{at} {line}") for at in range(30))
    async with show("train", (80, 34)) as panel:
        panel.source.snapshot = lambda: replace(
            panel.app.picture, version=99, log=LogView("train", 2, 12_000, lines, "g1")
        )
        await panel.pass_time(1)
        log = await opened(panel)
        assert "end" not in panel.text()
        await panel.press("w")
        told = panel.text()
        assert "29 begin" in told and "end" in told
        assert log.virtual_size.height > 30
        await panel.press("w", "g")
        assert "0 begin" in panel.text() and log.virtual_size.height == 30


async def test_a_skipped_part_says_so_and_is_brought(show) -> None:
    class Holed(MockSource):
        def _act(self, command):
            if isinstance(command, ReadLog):
                assert command.fetch and command.at == 14_000_000
                lines = (LogLine(13_999_990, 14_000_000, "was skipped"),)
                return LogBlock(13_999_990, 14_000_000, lines, generation="g1")
            return super()._act(command)

    tail = (
        LogLine(0, 10, "early"),
        LogLine(10, 14_000_000, "", "skipped"),
        LogLine(14_000_000, 14_000_010, "late"),
    )
    async with show(source=Holed()) as panel:
        panel.source.snapshot = lambda: replace(
            panel.app.picture, version=99, log=LogView("train", 2, 14_000_010, tail, "g1")
        )
        await panel.pass_time(1)
        assert "skipped 14.0 MB, press L" in panel.text()
        await opened(panel)
        await panel.press("L")
        await wait(panel)
        assert "was skipped" in panel.text()


async def test_enter_shows_a_line_that_was_cut_in_full(show) -> None:
    whole = b"{" + b"key, " * 900 + b"last}"

    class Cut(MockSource):
        def _act(self, command):
            if isinstance(command, Logs):
                assert (command.offset, command.length) == (10, len(whole) + 1)
                return {"data": whole + b"\nnext"}
            return super()._act(command)

    lines = (LogLine(0, 10, "short"), LogLine(10, 11 + len(whole), whole.decode()[:2000] + "…+2507"))
    async with show(source=Cut()) as panel:
        panel.source.snapshot = lambda: replace(panel.app.picture, version=99, log=LogView("train", 2, 99, lines, "g1"))
        await panel.pass_time(1)
        await opened(panel)
        await panel.press("enter")
        await wait(panel)
        assert "Line of 4.5 kB" in panel.text() and "{key, key," in panel.text()
        await panel.press("end")
        assert "last}" in panel.text() and "next" not in panel.text()


async def test_enter_says_when_no_line_was_cut(show) -> None:
    async with show("train", (120, 40)) as panel:
        await opened(panel)
        await panel.press("enter")
        assert "no line in view was cut" in panel.app.message[0]


async def test_a_log_that_began_anew_keeps_the_old_lines_above_a_rule(show) -> None:
    async with show("train", (120, 40)) as panel:
        base = panel.app.picture

        def feed(version: int, generation: str, text: str) -> None:
            log = LogView("train", 1, 10, (LogLine(0, 10, text),), generation)
            panel.source.snapshot = lambda: replace(base, version=version, log=log)

        feed(90, "g7", "of the old file")
        await panel.pass_time(1)
        feed(91, "g8", "of the new file")
        await panel.pass_time(1)
        told = panel.text()
        assert told.index("of the old file") < told.index("log restarted") < told.index("of the new file")


async def test_selected_lines_are_copied(show) -> None:
    async with show("train", (120, 40)) as panel:
        copied: list[str] = []
        panel.app.copy_to_clipboard = copied.append
        log = await opened(panel)
        await panel.press("V", "k", "k")
        assert "3 lines selected" in panel.text()
        await panel.press("y")
        assert copied == ["\n".join(line.text for line in log.window.lines[-3:])]
        assert log.chosen is None and "copied 3 lines" in panel.text()


async def test_too_much_for_a_clipboard_is_said(show) -> None:
    async with show("train", (120, 40)) as panel:
        panel.app.copy("x" * 2_000_000)
        assert "too long for a terminal's clipboard" in panel.text() or panel.app.message[0]


async def test_the_bar_that_is_drawn_now_stands_in_the_title(show) -> None:
    async with show("train", (120, 40)) as panel:
        bar = LogLine(0, 80, "shards:  66%|######    | 2/3 [00:04<00:02,  2.0s/it]", "partial")
        log = LogView("train", 2, 80, (bar,), "g1")
        panel.source.snapshot = lambda: replace(panel.app.picture, version=99, log=log)
        await panel.pass_time(1)
        assert "follow ▼ · shards 2/3" in panel.text()


# The window by itself


async def test_only_new_lines_are_looked_at_however_many_are_held(show, monkeypatch) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(logpane, "most_cells", lambda text: looked_at.append(text) or most_cells(text))
    async with show("train", (120, 40)) as panel:
        base = panel.app.picture
        for number in range(1, 4):
            looked_at.clear()
            log = view(7 * number, 1000)
            panel.source.snapshot = lambda log=log, number=number: replace(base, version=900 + number, log=log)
            await panel.pass_time(0.1)
        assert looked_at == [f"line {number}" for number in range(1014, 1021)]


def view(first: int, count: int, generation: str = "g", half: str = "") -> LogView:
    lines = [LogLine(10 * number, 10 * number + 10, f"line {number}") for number in range(first, first + count)]
    end = 10 * (first + count)
    lines += [LogLine(end, end + len(half), half, "partial")] if half else []
    return LogView("train", 1, lines[-1].end, tuple(lines), generation)


def numbers(window: LogWindow) -> list[str]:
    return [line.text for line in window.lines]


def test_a_half_line_is_replaced_by_the_whole_one() -> None:
    window = LogWindow()
    window.take_tail(view(0, 2, half="li"), stay=False)
    window.take_tail(view(0, 3), stay=False)
    assert numbers(window) == ["line 0", "line 1", "line 2"]


def test_while_somebody_reads_a_flood_does_not_move_the_lines() -> None:
    window = LogWindow()
    window.take_tail(view(0, 1000), stay=False)
    window.take_tail(view(50_000, 1000), stay=True)
    assert numbers(window)[-1] == "line 999" and not window.last
    window.take_tail(view(50_000, 1000), stay=False)
    assert numbers(window)[0] == "line 50000" and window.last


@pytest.mark.parametrize("stay", [False, True])
def test_the_window_stays_bounded(stay: bool) -> None:
    window = LogWindow()
    for first in range(0, 3 * MAX_LINES, 500):
        window.take_tail(view(first, 1000), stay=stay)
    assert len(window.lines) <= MAX_LINES + 1000


def test_earlier_blocks_push_out_the_newest_lines() -> None:
    log = MockLog(100_000, lambda number: f"line {number}")
    window = LogWindow()
    window.replace(before(log, None, MAX_LINES))
    assert window.put_before(before(log, window.start, 500)) == 500
    assert len(window.lines) == MAX_LINES and not window.last
    assert window.end == window.lines[-1].end == (100_000 - 500) * WIDTH


async def test_colours_of_lines_are_kept_until_plain_text_is_wanted(show) -> None:
    async with show("train", (120, 40)) as panel:
        line = LogLine(0, 20, "\x1b[31mhot\x1b[0m and cold")
        coloured = replace(panel.app.picture, version=99, log=LogView("train", 2, 20, (line,), "g2"))
        panel.source.snapshot = lambda: coloured
        await panel.pass_time(1)
        log = await opened(panel)

        def inks() -> list:
            return [segment.style.color for segment in log.render_line(0) if segment.text.strip()]

        assert len(set(inks())) == 2 and inks()[0].number == 1
        await panel.press("C")
        assert len(set(inks())) == 1 and "no colours" in panel.text() and "hot and cold" in panel.text()
        await panel.press("C")
        assert inks()[0].number == 1 and "no colours" not in panel.text()
