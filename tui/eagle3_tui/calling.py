"""Calling the operator to the terminal: its bell, and a note on the desktop where the terminal can show one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from eagle3_backend.control.snapshot import ALERT, Snapshot
from eagle3_tui.text import clean

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

PLAIN = ("linux", "dumb", "vt", "cons")
"""Terminals without clipboard and notes, by the beginning of their names."""
NOTE = 200
"""Characters of a note at most."""


def has_clipboard(environment: Mapping[str, str]) -> bool:
    """Whether the terminal may take a copy by OSC 52. One that ignores it does not say so."""
    return not environment.get("TERM", "").startswith(PLAIN)


class Calls:
    """Rings once for each alert that comes while the panel is open; not for those that are told to be quiet, nor for
    those that another panel rings for."""

    def __init__(self, began: float, *, bell: bool, desktop: bool) -> None:
        """``began`` is the wall time since which alerts are news."""
        self._began = began
        self._bell, self._desktop = bell, desktop
        self._rung: set[tuple[float, str, str]] = set()

    def take(self, panel: Panel, snapshot: Snapshot) -> None:
        """Say what is new in the footer, and ring."""
        for event in snapshot.events:
            name = (event.at, event.source, event.text)
            if event.kind != ALERT or event.at < self._began or name in self._rung:
                continue
            self._rung.add(name)
            words = f"{event.source} {event.text}"
            panel.notice(words, "good" if event.severity == "ok" else "bad")
            if event.data.get("quiet") or event.data.get("elsewhere"):
                continue
            if self._bell:
                panel.bell()
            if self._desktop:
                panel.send_to_terminal(note(words, os.environ))


def note(words: str, environment: Mapping[str, str]) -> str:
    """The sequence that makes a terminal show a note; empty where it would be printed.

    OSC 777 for the terminals that know only that (VTE, foot, rxvt), OSC 9 for all others, which take it or leave it.
    tmux and screen are asked to pass it on.
    """
    terminal = environment.get("TERM", "")
    if terminal.startswith(PLAIN):
        return ""
    told = clean(words, NOTE).replace(";", ",")
    by_name = "VTE_VERSION" in environment or terminal.startswith(("foot", "rxvt"))
    sequence = f"\x1b]777;notify;eagle3-tui;{told}\x07" if by_name else f"\x1b]9;{told}\x07"
    if "TMUX" in environment:
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return f"\x1bP{sequence}\x1b\\" if terminal.startswith("screen") else sequence
