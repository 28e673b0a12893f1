"""Every screen and dialog at sizes from far too small to very large, in each state of a campaign."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from rich.cells import cell_len

from eagle3_backend.control.commands import Start
from eagle3_tui import candidates
from eagle3_tui.choosing import Choosing
from eagle3_tui.keymap import name_of
from eagle3_tui.screens.chat import ChatScreen, Turn
from eagle3_tui.screens.dashboard import Dashboard
from eagle3_tui.screens.dialogs import Dialog, HostKeyDialog
from eagle3_tui.widgets.footer import chosen
from eagle3_tui.widgets.picture import Picture

pytestmark = pytest.mark.long

SIZES = [(40, 10), (59, 24), (60, 16), (66, 18), (80, 24), (80, 50), (100, 21), (100, 30), (120, 40), (180, 36),
         (200, 16), (240, 70)]  # fmt: skip
STATES = ["empty", "first", "refused", "train", "failed", "reconnecting", "stale", "done"]
"""Nothing known, nothing run yet, ready, at work with findings, failed, without a link, with old data, done."""
SCREENS = ["enter", "z", "t", "m", "e", "o", "doctor", "c", "v", "B", "W", "question_mark", "log"]


def check(panel, size: tuple[int, int]) -> None:
    """Nothing is cut off or lies over something else, the footer is whole, and the focus can be seen."""
    screen = panel.app.screen
    strips = screen._compositor.render_strips()
    lines = panel.lines()
    where = (size, str(screen), panel.text())
    assert len(strips) == size[1] and {strip.cell_length for strip in strips} == {size[0]}, where
    shown = [widget for widget in screen.query(".panel, #header, #footer, #small, #box") if widget.region.area]
    for widget in shown:
        geometry = screen._compositor.full_map[widget]
        assert geometry.visible_region == geometry.region, (widget, geometry.region, *where)
        if widget.has_class("panel"):
            assert widget.region.height >= 3 and widget.region.width >= 24, (widget, widget.region, *where)
    for one, other in combinations(shown, 2):
        assert one.region.intersection(other.region).area == 0, (one, other, *where)
    for picture in screen.query(Picture):
        if picture.region.area and type(picture).strips is Picture.strips:
            width, height = picture.size
            drawn = [cell_len(line.plain.rstrip()) for line in picture.lines(width, height)]
            assert max(drawn, default=0) <= width, (picture, *where)
    if isinstance(screen, Dialog):
        assert "esc" in panel.text() and "back" in panel.text(), where
        return
    footer = lines[-1]
    for key in chosen(screen.context, size[0]):
        assert f"{name_of(key.keys[0])} {key.help}" in footer, where
    assert "q quit" in footer or "esc back" in footer, where
    if size[0] >= 60 and size[1] >= 16:
        assert screen.focused is not None and screen.focused.region.area, where
        assert "? help" in footer, where
        assert sum(line.count("┏") for line in lines) == 1, where
    else:
        assert "60x16 needed" in panel.text(), where


async def visit(panel, screen: str) -> None:
    """Open a screen or a dialog from the dashboard: by its key, or what has none."""
    if screen == "doctor":
        panel.app.action_doctor()
    elif screen == "diff":
        flat, nested = candidates.artifacts(panel.app.picture)
        await Choosing(panel.app)._show(flat, nested)
    elif screen == "log":
        await panel.press("tab", "z")
    elif screen == "refusal":
        panel.app.ask(Start("bench"))
    elif screen == "host key":
        panel.app.push_screen(HostKeyDialog(replace(panel.app.picture.host, offered_key="ssh-ed25519 SHA256:x" * 3)))
    else:
        await panel.press(screen)
    await panel.settle()
    if screen == "c":
        await panel.until(lambda: panel.app.screen.form is not None)
    panel.app.notice("")


async def resize(panel, size: tuple[int, int]) -> None:
    await panel.pilot.resize_terminal(*size)
    await panel.settle()
    for _ in range(20):
        if "┏" in panel.text() or "needed" in panel.text():
            return
        await panel.settle()  # a panel that was hidden has the focus again a frame after it is seen


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text('[host]\naddress = "embedded"\n[target]\nmodel = "demo:smollm2-135m"\n')
    return path


@pytest.mark.parametrize("state", STATES)
async def test_every_screen_fits_every_size(show, state, profile) -> None:
    """The dashboard at all sizes in each state; each other screen at two of them, at others in each state."""
    async with show(state, (120, 40)) as panel:
        panel.app.open_profile(profile)
        await panel.settle()
        panel.app.notice("")
        for size in [(20, 6), *SIZES]:
            await resize(panel, size)
            if size == (20, 6):  # no footer fits there
                assert [len(line) for line in panel.lines()] == [20] * 6
            else:
                check(panel, size)
        for number, screen in enumerate(SCREENS, STATES.index(state)):
            await visit(panel, screen)
            for size in SIZES[number % 6 :: 6]:
                await resize(panel, size)
                check(panel, size)
            await panel.press("escape")  # the last size has room for the dashboard and its keys
            assert isinstance(panel.app.screen, Dashboard), screen
            panel.app.screen.query_one("Pipeline").focus()


async def test_the_diff_fits_every_size(show) -> None:
    async with show("done", (120, 40)) as panel:
        await visit(panel, "diff")
        for keys, sizes in (([], SIZES[::2]), (["enter"], SIZES[1::2])):
            await panel.press(*keys)
            for size in sizes:
                await resize(panel, size)
                await panel.settle()
                check(panel, size)


async def test_a_chat_fits_every_size(show) -> None:
    async with show("done", (120, 40)) as panel:
        await panel.press("v", "s", "enter")
        await panel.pass_time(6)
        await panel.press("K")
        await panel.settle()
        await panel.press("escape")  # out of the line in which something is asked
        assert isinstance(panel.app.screen, ChatScreen)
        panel.app.screen.turns.append(Turn("x" * 300, "so " * 900, "told " * 60))
        for size in SIZES:
            await resize(panel, size)
            check(panel, size)


@pytest.mark.parametrize(
    ("state", "dialogs"),
    [
        ("train", ("x", "X", "a", "d", "ctrl+p", "host key")),
        ("refused", ("s", "refusal")),
        ("failed", ("R",)),
        ("key_changed", ("r",)),
        ("done", ("E", "A", "O")),
    ],
)
async def test_dialogs_fit_every_size(show, state, dialogs) -> None:
    async with show(state, (120, 40)) as panel:
        if state == "done":
            await panel.press("v", "s", "enter")  # those of a service
            await panel.pass_time(6)
        for dialog in dialogs:
            await visit(panel, dialog)
            assert isinstance(panel.app.screen, Dialog), dialog
            for size in SIZES[::4]:
                await resize(panel, size)
                check(panel, size)
            await resize(panel, (120, 40))
            await panel.press("escape")


@pytest.mark.parametrize("size", SIZES[1::4])
async def test_a_panel_opened_at_a_size_looks_as_one_resized_to_it(show, size) -> None:
    async with show("train", size) as panel:
        check(panel, size)
        opened = panel.lines()
    async with show("train", (90, 28)) as panel:
        await resize(panel, size)
        await panel.settle()
        assert [line[:-2] for line in panel.lines()] == [line[:-2] for line in opened]  # but for the scrollbar


async def test_a_storm_of_resizes_ends_in_the_right_picture(show) -> None:
    async with show("train", (120, 40)) as panel:
        before = panel.lines()
        for step in range(40):
            await panel.pilot.resize_terminal(40 + step * 5, 10 + step)
        await panel.pilot.resize_terminal(120, 40)
        await panel.settle()
        await panel.settle()
        assert panel.lines() == before


async def test_a_resize_whose_timer_is_lost_is_drawn_all_the_same(show) -> None:
    class Lost:
        def stop(self) -> None:
            """A timer that will never fire."""

    async with show("train", (120, 40)) as panel:
        panel.app.set_timer = lambda *_, **__: Lost()
        for size in ((80, 24), (200, 60)):
            await panel.pilot.resize_terminal(*size)
            panel.app._tick()
            await panel.settle()
            check(panel, size)


async def test_resizing_rebuilds_no_widget(show) -> None:
    async with show("train", (80, 24)) as panel:
        before = list(panel.app.screen.query("*"))
        await panel.pilot.resize_terminal(200, 60)
        await panel.settle()
        assert list(panel.app.screen.query("*")) == before
