"""Screens with tables, whatever hosts, processes and events are called; and in plain ASCII."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.commands import Artifact, Attempts, Doctor, Hosts, Orphans, Processes
from eagle3_backend.control.snapshot import Event
from eagle3_tui.mock import MockSource

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
        event = Event(1.7e9, self.text, self.text, self.text, self.text, {self.text: [self.text]})
        return replace(super().snapshot(), events=(event, event))


def check_whole(panel) -> None:
    for strip in panel.app.screen._compositor.render_strips():
        assert strip.cell_length == panel.app.size.width
        for segment in strip:
            assert segment.control is None
            assert not [character for character in segment.text if ord(character) < 32 or 127 <= ord(character) < 160]


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("keys", ["t", "m", "e", "o", ":doctor", "enter", "z"])
async def test_nasty_names_leave_every_screen_whole(show, text, keys) -> None:
    async with show(source=Named(text), size=(100, 30)) as panel:
        if keys.startswith(":"):
            panel.app.action_doctor()
        else:
            await panel.press(keys)
        await panel.settle()
        await panel.press("down", "tab", "end")
        check_whole(panel)


@pytest.mark.parametrize("keys", ["t", "m", "e", "o", "enter", "z", "question_mark", "colon", "ctrl+p"])
async def test_every_screen_has_a_plain_form(show, keys) -> None:
    async with show("failed", (100, 30), ascii_only=True) as panel:
        await panel.press(keys)
        await panel.settle()
        assert [line for line in panel.lines() if not line.isascii()] == []
