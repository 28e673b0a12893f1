"""Remote text is data: whatever a host sends, the panel stays whole and the terminal obeys nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from eagle3_backend.control.snapshot import Event, Gpu, HostView, LogView, Machine, Snapshot, StageView
from eagle3_backend.findings import error
from eagle3_backend.runs.loglines import LogLine
from eagle3_backend.states import LinkState, RunState
from eagle3_tui.widgets.log import LogTail
from eagle3_tui.widgets.logtext import cells_of, most_cells, plain, styled

NASTY = [
    "[/] closing tag",
    "[bold red]markup[/] [@click=app.quit]x[/]",
    "\x1b]0;title\x07\x1b]52;c;aGk=\x07",
    "\x1b[2J\x1b[H\x1b[31mred\x1b[0m\x1b[?1049l",
    "\x1b]8;;http://example.invalid\x1b\\link\x1b]8;;\x1b\\",
    "日本語の長い名前" * 20,
    "שלום עולם مرحبا \u202egnp.exe",
    "e" + "\u0301" * 400,
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈",
    "zero\u200b\u200c\u200d\ufeffwidth",
    "\ufffd\x00\x07\x08\x7f\x9b\x85",
    "\ud800 lone",
    "a\nb\r\nc\td",
    "",
    " ",
    "x" * 5000,
]


def log_of(*texts: str, first: int = 0) -> LogView:
    """A log whose lines take 10 bytes each; ``first`` is the number of the first."""
    lines = tuple(LogLine(10 * (first + at), 10 * (first + at + 1), text) for at, text in enumerate(texts))
    return LogView("train", 2, 10 * (first + len(texts)), lines, "g2")


def nasty_snapshot(text: str, version: int = 99) -> Snapshot:
    """A snapshot with ``text`` wherever a host or a profile has a say."""
    finding = error("nasty", text, path=text, expected=text, actual={text: [text]}, fix=text)
    stage = StageView(
        text, text, RunState.RUNNING, blocked_by=(text,), run=text, attempt=1, done=1.0, total=2.0, unit=text,
        elapsed=5.0, heartbeat_age=1.0, findings=(finding,), summary={text: {text: text}, "list": [text]},
    )  # fmt: skip
    gone = replace(stage, name="setup", state=RunState.CRASHED, remark=text)
    outdated = replace(stage, name="vocab", state=RunState.DONE, outdated_by=(text, text))
    gpu = Gpu(0, text, float("nan"), None, None, None, float("inf"))
    host = HostView(text, LinkState.LIVE, latency=0.01, machine=Machine(cpu_percent=float("nan"), gpus=(gpu,)))
    return Snapshot(
        version=version,
        campaign=text,
        profile=text,
        workspace=text,
        host=host,
        stages=(gone, outdated, stage),
        series={text: ((0.0, 1.0), (1.0, float("nan")), (2.0, float("inf"))), "train/loss": ((0.0, float("nan")),)},
        log=replace(log_of(text, text), stage=text),
        events=(Event(0.0, text, text, text),),
        findings=(finding,),
        others=(replace(host, name=f"{text}2", agent=text, problem=finding),),
    )


def check_whole(panel) -> None:
    width = panel.app.size.width
    for strip in panel.app.screen._compositor.render_strips():
        assert strip.cell_length == width
        for segment in strip:
            assert segment.control is None
            assert not [character for character in segment.text if ord(character) < 32 or 127 <= ord(character) < 160]
            assert not segment.style or not segment.style.link


@pytest.mark.parametrize("text", NASTY)
async def test_nasty_text_anywhere_leaves_the_panel_whole(show, text) -> None:
    async with show("train", (120, 40)) as panel:
        panel.source.snapshot = lambda: nasty_snapshot(text)
        await panel.pass_time(1)
        for size in ((120, 40), (80, 24), (200, 60)):
            await panel.pilot.resize_terminal(*size)
            await panel.settle()
            check_whole(panel)
        await panel.press("G", "enter")
        check_whole(panel)


async def test_markup_in_a_log_line_is_shown_as_it_is(show) -> None:
    async with show("train", (120, 40)) as panel:
        panel.source.snapshot = lambda: replace(panel.app.picture, version=99, log=log_of(*NASTY))
        await panel.pass_time(1)
        await panel.press("tab", "g")
        assert "[/] closing tag" in panel.text()
        assert "[bold red]markup[/] [@click=app.quit]x[/]" in panel.text()


async def test_a_nasty_host_name_in_the_key_dialog_is_harmless(show) -> None:
    async with show("train", (80, 24)) as panel:
        host = HostView("[/]\x1b]0;x\x07evil", LinkState.OFFLINE, offered_key="[/] SHA256:\x1b[2Jabc")
        panel.source.snapshot = lambda: Snapshot(version=99, host=host)
        await panel.pass_time(1)
        assert "Unknown host key" in panel.text() and "[/]evil" in panel.text() and "SHA256:abc" in panel.text()
        check_whole(panel)


async def test_a_line_of_ten_megabytes_is_cut_before_it_is_looked_at(show) -> None:
    line = "x\x1b[31m" + "y" * 10_000_000
    async with show("train", (80, 24)) as panel:
        panel.source.snapshot = lambda: replace(panel.app.picture, version=99, log=log_of(line))
        await panel.pass_time(1)
        check_whole(panel)
        assert panel.app.screen.query_one(LogTail).virtual_size.width < 5000
    assert styled(line).plain.endswith("…+9998006")


async def test_colours_of_a_log_line_are_kept_but_never_hidden_text() -> None:
    text = styled("\x1b[32mok\x1b[0m \x1b[8mhidden\x1b[0m \x1b[5mblink\x1b[0m")
    assert text.plain == "ok hidden blink"
    assert any(span.style.color and span.style.color.number == 2 for span in text.spans)
    rendered = list(text.render(__import__("rich.console").console.Console()))
    assert not any(segment.style and (segment.style.conceal or segment.style.blink) for segment in rendered)


@pytest.mark.parametrize(
    "text", [*NASTY, "\x1b[32mgreen\x1b[0m\tand \x1b[38;5;9mmore\x1b[m", "\x1b[1", "a\rb\r", "\t" * 9]
)
async def test_a_line_is_as_wide_as_it_is_drawn_and_no_wider_than_its_bound(text) -> None:
    drawn = styled(text).plain
    assert plain(text) == drawn
    assert cells_of(text) == cell_len(drawn) <= most_cells(text)


async def test_progress_bars_collapse_to_their_last_frame() -> None:
    assert styled("1%|\r50%|#\r100%|##\r").plain == "100%|##"


async def test_a_flood_of_lines_keeps_keys_working(show) -> None:
    async with show("train", (120, 40), flood=10_000) as panel:
        for _ in range(20):
            await panel.pass_time(0.1)
        log = panel.app.screen.query_one(LogTail)
        assert log.follow
        newest = panel.app.picture.log.lines[-1].text
        assert newest[:40] in panel.text()
        await panel.press("k")
        assert panel.app.screen.stage == "vocab"


async def test_scrolling_up_stops_following_and_f_follows_again(show) -> None:
    async with show("train", (120, 40)) as panel:
        log = panel.app.screen.query_one(LogTail)
        await panel.press("tab", "k", "k")
        assert not log.follow and "f follows" in panel.text()
        seen = log.window.lines[log.scroll_offset.y].text
        await panel.pass_time(10)
        assert log.window.lines[-1].text not in panel.text()
        await panel.press("f")
        assert log.follow and log.window.lines[-1].text in panel.text()
        assert seen not in panel.text() or len(log.window.lines) < log.size.height


async def test_lines_stay_where_they_are_while_older_ones_leave(show) -> None:
    lines = [f"line {number}" for number in range(500)]
    async with show("train", (120, 40)) as panel:
        base = panel.app.picture

        def feed(version: int, first: int) -> None:
            log = log_of(*lines[first : first + 200], first=first)
            panel.source.snapshot = lambda: replace(base, version=version, log=log)

        feed(900, 0)
        await panel.pass_time(1)
        await panel.press("tab", "pageup", "pageup")
        log = panel.app.screen.query_one(LogTail)
        top = log.window.lines[log.scroll_offset.y].text
        feed(901, 50)
        await panel.pass_time(1)
        assert log.window.lines[log.scroll_offset.y].text == top


async def test_long_lines_are_read_sideways(show) -> None:
    async with show("train", (80, 24)) as panel:
        line = "start" + "-" * 200 + "end"
        panel.source.snapshot = lambda: replace(panel.app.picture, version=99, log=log_of(line))
        await panel.pass_time(1)
        await panel.press("tab")
        assert "start" in panel.text()
        await panel.press(*["l"] * 0, *["right"] * 40)
        assert "end" in panel.text()
        await panel.press(*["left"] * 40)
        assert "start" in panel.text()
