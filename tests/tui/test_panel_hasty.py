"""Keys pressed by somebody in a hurry, by a cat, by a script: nothing is started twice, lost or broken."""

from __future__ import annotations

import os
import random
from concurrent.futures import Future
from queue import Queue

import pytest
from textual.events import Key

from eagle3_backend.control.commands import EndOrphan, Resume, Start, Stop, TrustHostKey, WriteProfile
from eagle3_tui.hangup import insist
from eagle3_tui.keymap import KEYS
from eagle3_tui.mock import MockSource
from eagle3_tui.screens.dashboard import Dashboard

pytestmark = pytest.mark.long

ACTS = (Start, Stop, Resume, EndOrphan, TrustHostKey, WriteProfile)
LEAVING = {"quit", "interrupt", "shell"}


def acts(panel) -> list:
    return [one for one in panel.source.commands if isinstance(one, ACTS)]


class Deaf(MockSource):
    """A source whose acts are never answered, as those on a link that hangs."""

    def submit(self, command):
        if isinstance(command, ACTS):
            self.commands.append(command)
            return Future()
        return super().submit(command)


@pytest.mark.parametrize(
    "keys", [("x", "x", "x", "x"), ("x", "enter", "enter", "enter"), ("x", "enter", "x", "x", "x")]
)
async def test_a_hasty_stop_is_one_stop_at_most(show, keys) -> None:
    async with show(source=Deaf()) as panel:
        await panel.press(*keys)
        assert len(acts(panel)) <= 1 and all(one == Stop("train") for one in acts(panel))


async def test_two_starts_in_a_row_ask_twice(show) -> None:
    """A double press never starts without the dialog having been seen."""
    async with show("refused") as panel:
        for key in ("s", "s", "s"):
            panel.app.simulate_key(key)
        await panel.settle()
        assert acts(panel) == [] and len(panel.app.screen_stack) == 2


async def test_one_enter_too_many_starts_one_chain(show) -> None:
    async with show(source=Deaf("refused")) as panel:
        panel.app.simulate_key("s")
        await panel.settle()
        for _ in range(5):
            panel.app.simulate_key("enter")
        await panel.settle()
        assert len(acts(panel)) == 1


async def test_held_down_screen_keys_open_one_screen(show) -> None:
    async with show() as panel:
        for key in "tttttmmmmmccccceeeee":
            panel.app.simulate_key(key)
        for _ in range(5):
            await panel.settle()
        kinds = [type(screen).__name__ for screen in panel.app.screen_stack]
        assert len(kinds) == len(set(kinds))
        for _ in range(10):
            await panel.press("escape")
        assert isinstance(panel.app.screen, Dashboard)


@pytest.mark.parametrize("scene", ["reconnecting", "connecting", "key_changed", "empty"])
async def test_no_act_leaves_while_the_link_is_cut(show, scene) -> None:
    async with show(scene, (80, 24)) as panel:
        for key in "sxXuRb":
            await panel.press("escape", key, "enter", "enter", "escape")
        assert acts(panel) == [] and panel.app.is_running


async def test_a_link_that_is_cut_under_a_dialog_refuses_and_says_so(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("x")
        panel.source.scene = "reconnecting"
        await panel.pass_time(1)
        await panel.press("enter", "x")
        await panel.settle()
        assert acts(panel) in ([], [Stop("train")]) and panel.app.is_running
        assert isinstance(panel.app.screen, Dashboard)


@pytest.mark.parametrize("size", [(20, 24), (12, 4)])
async def test_every_key_lives_in_a_terminal_that_is_far_too_small(show, size) -> None:
    async with show("failed", size) as panel:
        for key in KEYS:
            for one in () if key.id in LEAVING else key.keys[:1]:
                await panel.press(one)
        for _ in range(12):
            await panel.press("escape")
        assert panel.app.is_running and panel.app.return_code is None
        assert all(len(line) <= size[0] for line in panel.lines())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scene", ["train", "failed", "reconnecting"])
async def test_a_cat_on_the_keyboard_of_a_readonly_panel_does_nothing(show, scene, seed, tmp_path, monkeypatch) -> None:
    from eagle3_tui import saving

    monkeypatch.setattr(saving, "saved_files", lambda: tmp_path)
    choose = random.Random(f"{scene}{seed}")
    keys = [one for key in KEYS if key.id not in LEAVING for one in key.keys]
    async with show(scene, (80, 24), readonly=True) as panel:
        for _ in range(60):
            await panel.pilot.press(choose.choice(keys))
        for _ in range(15):
            await panel.press("escape")
        assert panel.app.is_running and panel.app.return_code is None, panel.text()
        assert [one for one in acts(panel) if not isinstance(one, TrustHostKey)] == []


@pytest.mark.parametrize("pause", [False, True])
async def test_what_is_typed_faster_than_a_line_opens_is_no_command(show, pause) -> None:
    async with show("refused", (100, 30)) as panel:
        for key in [":", *"stop xXsuRqcCtJ"]:
            panel.app.post_message(Key({":": "colon", " ": "space"}.get(key, key), key))
            if pause:
                await panel.pilot.pause()
        for _ in range(20):
            await panel.settle()
        assert panel.app.screen.query_one("#prompt Input").value == "stop xXsuRqcCtJ"
        assert acts(panel) == [] and len(panel.app.screen_stack) == 1 and panel.app.is_running


async def test_what_is_typed_faster_than_a_dialog_opens_is_its_text(show) -> None:
    async with show("train", (100, 30)) as panel:
        for key in ("X", *"nntrain"):
            panel.app.simulate_key(key)
        for _ in range(20):
            await panel.settle()
        assert panel.app.screen.query_one("Input").value == "nntrain" and acts(panel) == []


async def test_keys_that_wait_for_a_field_depend_on_no_timer_that_begins_too_late(show) -> None:
    """As one-shot timers of Textual may on a busy machine; all keys would be held from then on, q as well."""
    async with show("train", (100, 30)) as panel:
        panel.app.set_timer = lambda *_, **__: None
        for key in ("X", "n"):
            panel.app.simulate_key(key)
        await panel.until(lambda: panel.app.screen.query("Input") and panel.app.screen.query_one("Input").value == "n")


async def test_enter_overtakes_no_text_that_waits_for_the_line(show, monkeypatch) -> None:
    """As in a line that is pasted with its end: keys come back from a pane before and after the line has the focus."""
    async with show("train", (100, 30)) as panel:
        await panel.press("colon")
        ahead = panel.app._ahead
        with monkeypatch.context() as before:
            before.setattr(ahead, "_field", lambda: None)
            assert ahead.missed(Key("x", "x"))
        assert ahead.missed(Key("enter", "\r"))
        await panel.until(lambda: "there is no :x here" in panel.app.message[0])


async def test_esc_leaves_a_line_that_is_not_open_yet(show) -> None:
    async with show("train", (100, 30)) as panel:
        for key in ("colon", "x", "escape"):
            panel.app.simulate_key(key)
        for _ in range(20):
            await panel.settle()
        assert not panel.app.screen.query("#prompt") and acts(panel) == []
        await panel.press("x")
        assert len(panel.app.screen_stack) == 2


async def test_whoever_bounds_the_end_hears_that_the_panel_leaves_and_how(show) -> None:
    async with show("train", (80, 24)) as panel:
        told: list[int] = []
        panel.app.left = told.append
        await panel.pilot.press("q")
        panel.app._leave_by_signal(None, 143)
    assert told == [0, 143]


def test_a_process_that_does_not_end_in_time_is_ended(monkeypatch) -> None:
    ended: Queue[int] = Queue()
    monkeypatch.setattr(os, "_exit", ended.put)
    insist(3, seconds=0.0)
    assert ended.get(timeout=60) == 3


async def test_news_and_ticks_that_come_while_the_panel_leaves_find_no_screen_and_do_no_harm(show) -> None:
    async with show("train", (80, 24)) as panel:
        stacks, mode = panel.app._screen_stacks, panel.app._current_mode
        kept, stacks[mode] = stacks[mode], []
        panel.clock.now += 1
        panel.app.pull()
        panel.app._tick()
        stacks[mode] = kept
        await panel.settle()
        assert "Pipeline" in panel.text()
