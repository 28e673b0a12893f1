"""Screens with tables, whatever hosts, processes and events are called; and in plain ASCII."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.commands import Artifact, Attempts, Doctor, Hosts, Locks, Orphans, Processes
from eagle3_backend.control.snapshot import Event
from eagle3_backend.findings import error
from eagle3_tui.mock import MockSource
from eagle3_tui.screens.dashboard import Dashboard
from eagle3_tui.screens.dialogs import HostKeyDialog, MessageDialog
from eagle3_tui.screens.refused import RefusedDialog
from eagle3_tui.screens.typed import TypedDialog

pytestmark = pytest.mark.long

NASTY = [
    "[/] [bold red]markup[/] [@click=app.quit]x[/]",
    "\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\x1b[31mred\x1b[0m",
    "日本語の長い名前" * 20,
    "שלום עולם \u202egnp.exe zero\u200bwidth " + "e" + "\u0301" * 400,
    "\ufffd\x00\x07\x9b\x85\nnext\r\nline\tx" + "y" * 5000,
    "",
]


class Named(MockSource):
    """Everything that a host or a person may name is called ``text``."""

    def __init__(self, text: str, **options) -> None:
        super().__init__("train", **options)
        self.text = text

    def _act(self, command):
        text = self.text
        if isinstance(command, Processes):
            return {"processes": [{"pid": 1, "user": text, "command": text, "cpu_percent": 1.0, "memory": 5,
                                   "gpus": [0], "run": text, "attempt": 1}]}  # fmt: skip
        if isinstance(command, Orphans):
            return {"orphans": [{"stage": text, "run": text, "attempt": 1, "campaign": text, "remark": text,
                                 "processes": [{"pid": 7, "command": text}]}]}  # fmt: skip
        if isinstance(command, Locks):
            holder = {"pid": 7, "command": text}
            return {"locks": [{"kind": kind, "thing": text, "run": text, "user": text, "since": 1.0, "seconds": 1.0,
                               "orphaned": True, "processes": [holder]} for kind in ("gpu", text, "artifact")],
                    "problem": error("nasty", text).to_json()}  # fmt: skip
        if isinstance(command, Hosts):
            return {"hosts": [{"name": text + "1", "address": text, "workspaces": [text], "seen": text}],
                    "candidates": [text + "2"]}  # fmt: skip
        if isinstance(command, Doctor):
            return {"checks": [{"area": text, "name": text, "level": "warn", "message": text, "fix": text}]}
        if isinstance(command, Attempts):
            return {"attempts": [{"stage": "train", "run": text, "attempt": 1, "fingerprint": text, "state": text,
                                  "started": 5.0, "ended": None, "elapsed": None, "remark": text}]}  # fmt: skip
        if isinstance(command, Artifact):
            return {"path": text, "fingerprint": text, "bytes": 5, "made_by": {"run": text, "attempt": 1},
                    "files": [{"path": text, "bytes": 5, "sha256": text}], "file_count": 9}  # fmt: skip
        return super()._act(command)

    def snapshot(self):
        text, shown = self.text, super().snapshot()
        finding = error("nasty", text, path=text, expected=text, actual={text: [text]}, fix=text)
        event = Event(1.7e9, text, text, text, text, {text: [text]})
        stages = tuple(
            replace(view, title=text, run=text, remark=text, unit=text, findings=(finding,), summary={text: text},
                    outdated_by=(text,), output=text) for view in shown.stages
        )  # fmt: skip
        gpus = tuple(replace(gpu, name=text) for gpu in shown.host.machine.gpus)
        host = replace(shown.host, name=text, agent=text, problem=finding,
                       machine=replace(shown.host.machine, gpus=gpus))  # fmt: skip
        others = (host, replace(host, name=f"{text}2"), replace(host, name=f"{text}3", problem=None))
        series = {text: ((0.0, 1.0), (1.0, 2.0)), f"{text}_0": ((0.0, 1.0),), **shown.series}
        return replace(shown, campaign=text, profile=text, workspace=text, host=host, others=others, stages=stages,
                       series=series, events=(event, event), log=replace(shown.log, stage=text),
                       findings=(finding,))  # fmt: skip


def check_whole(panel) -> None:
    for strip in panel.app.screen._compositor.render_strips():
        assert strip.cell_length == panel.app.size.width
        for segment in strip:
            assert segment.control is None
            assert not [character for character in segment.text if ord(character) < 32 or 127 <= ord(character) < 160]


SCREENS = ["enter", "z", "t", "m", "e", "o", "doctor", "v", "B", "W", "question_mark"]
DIALOGS = ["s", "x", "R", "d", "ctrl+p", "colon", "key", "message", "typed", "refused"]


def dialog_of(panel, which: str):
    """A dialog that names what a host says."""
    text, finding = panel.source.text, panel.app.picture.findings[0]
    host = replace(panel.app.picture.host, offered_key=text)
    made = {"key": lambda: HostKeyDialog(host), "message": lambda: MessageDialog(text, (finding,), text),
            "typed": lambda: TypedDialog(text, text, text), "refused": lambda: RefusedDialog((finding,))}  # fmt: skip
    return made[which]() if which in made else None


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
async def test_nasty_names_leave_every_screen_and_dialog_whole(show, text) -> None:
    async with show(source=Named(text), size=(100, 30)) as panel:
        check_whole(panel)
        for keys in SCREENS:
            if keys == "doctor":
                panel.app.action_doctor()
            else:
                await panel.press(keys)
            await panel.settle()
            await panel.press("down", "tab", "end")
            check_whole(panel)
            await panel.press("escape", "escape")
            assert isinstance(panel.app.screen, Dashboard)
        for keys in DIALOGS:
            dialog = dialog_of(panel, keys)
            if dialog is not None:
                panel.app.push_screen(dialog)
                await panel.settle()
            else:
                await panel.press(keys)
            check_whole(panel)
            await panel.press("escape")


async def test_every_screen_and_dialog_has_a_plain_form(show) -> None:
    async with show("failed", (100, 30), ascii_only=True) as panel:
        for keys in ["enter", "z", "t", "m", "e", "o", "v", "B", "question_mark", "s", "R", "d", "ctrl+p", "colon"]:
            await panel.press(keys)
            assert [line for line in panel.lines() if not line.isascii()] == [], keys
            await panel.press("escape")
