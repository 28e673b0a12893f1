"""To another host, campaign or attempt by keys and by `:`; and what is copied, and where to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eagle3_backend.control.commands import FollowLog, Hosts, Open, Start
from eagle3_backend.control.snapshot import LogView
from eagle3_tui import going
from eagle3_tui.mock import MockSource
from eagle3_tui.screens.choose import ChooseDialog
from eagle3_tui.screens.dashboard import Dashboard
from eagle3_tui.screens.dialogs import ConfirmDialog, StartDialog, StopDialog


class Knowing(MockSource):
    """A mock that knows these hosts."""

    hosts: tuple[dict, ...] = ()

    def _act(self, command):
        if isinstance(command, Hosts):
            return {"hosts": self.hosts, "candidates": ["new-one"]}
        return super()._act(command)


@pytest.fixture
def known(tmp_path: Path) -> MockSource:
    profile = tmp_path / "b.toml"
    profile.touch()
    source = Knowing()
    source.hosts = (
        {"name": "h200-a", "profile": "local.toml", "workspaces": []},
        {"name": "h100-b", "profile": str(profile), "workspaces": []},
        {"name": "gone", "profile": str(tmp_path / "gone.toml"), "workspaces": []},
        {"name": "[/]old", "workspaces": []},
    )
    return source


def opened(panel) -> list[str]:
    return [one.profile.name for one in panel.source.commands if isinstance(one, Open)][1:]


async def test_a_digit_opens_what_was_open_on_that_host(show, known) -> None:
    async with show(source=known) as panel:
        await panel.press("2")
        assert opened(panel) == ["b.toml"] and panel.app.opened.profile.name == "b.toml"


@pytest.mark.parametrize(
    ("key", "words"),
    [("1", "worked on already"), ("3", "no profile of gone"), ("4", "no profile of"), ("9", "no host 9")],
)
async def test_a_digit_without_a_way_says_why(show, known, key, words) -> None:
    async with show(source=known) as panel:
        await panel.press(key)
        assert opened(panel) == [] and words in panel.lines()[-1]


async def test_hosts_are_numbered_as_their_keys_are(show, known) -> None:
    async with show(source=known) as panel:
        await panel.press("t")
        rows = [line for line in panel.lines() if "h100-b" in line or "[/]old" in line or "new-one" in line]
        assert [row.strip("┃▸ ").split()[0] for row in rows] == ["2", "4", "new-one"]
        await panel.press("j", "enter")
        assert opened(panel) == ["b.toml"]


async def test_a_line_goes_to_a_host_or_a_campaign_by_its_name(show, known, tmp_path) -> None:
    async with show(source=known) as panel:
        for line in (":host h100-b", f":campaign {tmp_path}/nothing.toml", ":host nowhere", ":campaign local-no-such"):
            await panel.press("colon")
            panel.app.screen.query_one("#prompt Input").value = line
            await panel.press("enter")
            await panel.settle()
        assert opened(panel) == ["b.toml"]
        assert "no profile named" in panel.lines()[-1]


async def test_a_campaign_is_chosen_from_the_profiles(show, known, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(going, "profiles_by_name", lambda: {"other": tmp_path / "b.toml"})
    async with show(source=known) as panel:
        await panel.press("J")
        assert isinstance(panel.app.screen, ChooseDialog) and "other" in panel.text()
        await panel.press("enter")
        assert opened(panel) == ["b.toml"]


async def test_unsaved_edits_are_asked_about_before_another_host_is_opened(show, known, monkeypatch) -> None:
    monkeypatch.setattr(Dashboard, "unsaved", property(lambda screen: "One edit is not saved; w saves it."))
    async with show(source=known) as panel:
        await panel.press("2")
        assert isinstance(panel.app.screen, ConfirmDialog) and opened(panel) == []
        await panel.press("escape", "2", "enter")
        assert opened(panel) == ["b.toml"]


async def test_a_host_is_changed_while_the_link_is_cut(show, known) -> None:
    known.scene = "reconnecting"
    async with show(source=known) as panel:
        await panel.press("2")
        assert opened(panel) == ["b.toml"]


def with_attempts(panel, newest: int, shown: int) -> None:
    """A stage train of so many attempts, and the log of one of them."""
    picture = panel.app.picture
    views = tuple(replace(view, attempt=newest) if view.name == "train" else view for view in picture.stages)
    changed = replace(picture, version=picture.version + 1, stages=views, log=LogView("train", shown))
    panel.source.snapshot = lambda: changed


@pytest.mark.parametrize("screen", ["dashboard", "stage"])
async def test_brackets_go_through_the_attempts_of_a_stage(show, screen) -> None:
    async with show() as panel:
        await panel.press(*["enter"] * (screen == "stage"))
        with_attempts(panel, 3, 3)
        await panel.pass_time(1)
        await panel.press("left_square_bracket")
        assert panel.source.commands[-1] == FollowLog("train", 2)
        with_attempts(panel, 3, 2)
        await panel.pass_time(1)
        await panel.press("right_square_bracket")
        assert panel.source.commands[-1] == FollowLog("train", 0)
        with_attempts(panel, 3, 3)
        await panel.pass_time(1)
        await panel.press("right_square_bracket")
        assert panel.source.commands[-1] == FollowLog("train", 0) and "no newer attempt" in panel.lines()[-1]


async def test_attempts_are_listed_and_one_is_shown(show) -> None:
    async with show() as panel:
        await panel.press("a")
        assert "Log of train" in panel.text() and "attempt 1" in panel.text()
        await panel.press("enter")
        assert panel.source.commands[-1] == FollowLog("train", 0)


async def test_bench_is_one_key(show) -> None:
    async with show("refused") as panel:
        panel.source.scene = "train"
        await panel.press("b")
        assert isinstance(panel.app.screen, StartDialog) and "▸ bench" in panel.text()
        await panel.press("enter")
        assert Start("bench") in panel.source.commands


async def test_readonly_benches_nothing(show) -> None:
    async with show(readonly=True) as panel:
        await panel.press("b")
        assert isinstance(panel.app.screen, Dashboard) and "--readonly" in panel.lines()[-1]


# Leaving and copying


@pytest.mark.parametrize("key", ["x", "X", "s", "d", "J", "ctrl+p", "colon", "R"])
async def test_ctrl_c_twice_leaves_from_everywhere(show, key) -> None:
    async with show() as panel:
        await panel.press(key)
        await panel.press("ctrl+c")
        assert not panel.app._exit
        await panel.press("ctrl+c")
        assert panel.app._exit


async def test_leaving_in_the_grace_time_asks_nobody_to_stop(show) -> None:
    async with show() as panel:
        await panel.press("x", "enter")
        assert isinstance(panel.app.screen, StopDialog)
        await panel.press("ctrl+c", "ctrl+c")
        assert panel.app._exit
        assert not [one for one in panel.source.commands if type(one).__name__ == "Stop"]


async def test_ctrl_c_copies_what_is_selected(show, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    async with show() as panel:
        await panel.press("tab", "V", "up", "ctrl+c")
        assert "loss=" in panel.app.clipboard and panel.app.clipboard.count("\n") == 1
        assert "copied 2 lines" in panel.lines()[-1]


@pytest.mark.parametrize(("terminal", "lines"), [("linux", 1), ("xterm", 40_000)])
async def test_what_no_clipboard_takes_becomes_a_file(show, monkeypatch, tmp_path, terminal, lines) -> None:
    from eagle3_tui import saving

    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(saving, "saved_files", lambda: tmp_path)
    async with show(size=(200, 60)) as panel:
        panel.app.copy("a line that is long enough\n" * lines)
        await panel.settle()
        [file] = tmp_path.iterdir()
        assert file.read_text().count("\n") == lines and "saved " in panel.lines()[-1]
        assert panel.app.clipboard == ""


async def test_a_copy_that_cannot_be_saved_either_is_told(show, monkeypatch, tmp_path) -> None:
    from eagle3_tui import saving

    monkeypatch.setenv("TERM", "linux")
    (tmp_path / "file").touch()
    monkeypatch.setattr(saving, "saved_files", lambda: tmp_path / "file" / "below")
    async with show() as panel:
        panel.app.copy("text")
        await panel.settle()
        assert "cannot save" in panel.lines()[-1]
