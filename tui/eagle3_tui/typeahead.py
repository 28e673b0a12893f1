"""Keys that are typed, or pasted, faster than a field opens belong to the field, and are no commands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.events import Key
from textual.widget import Widget

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

WAIT_SECONDS = 0.01
TRIES = 50
"""After so many looks a field has had its time; keys go to the screen again."""


class TypeAhead:
    """Holds keys from the moment in which a field is asked for until it has the focus."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._held: list[Key] = []
        self._tries = 0

    def take(self, key: Key) -> bool:
        """Whether this key waits for a field; to be asked of each before it goes anywhere."""
        if not self._held and not self._opens():
            return False
        self._held.append(key)
        if len(self._held) == 1:
            self._tries = 0
            self._look_soon()
        return True

    def missed(self, key: Key) -> bool:
        """Whether a key that a pane left over was meant for a field that has opened meanwhile; it gets it then.

        A field keeps what it can print, so that what comes this far is none of its own.
        """
        field = self._field()
        if self._held or field is None:  # none overtakes another
            return self.take(key)
        if key.is_printable:
            field._forward_event(_again(key))
        return key.is_printable

    def _opens(self) -> bool:
        """Whether the screen that is seen has a line, or a dialog its field, without focus yet."""
        stack = self._panel.screen_stack
        if not stack or self._field() is not None:
            return False
        screen = stack[-1]
        return bool(screen.query("#prompt")) or (screen.AUTO_FOCUS == "Input" and screen.focused is None)

    def _field(self) -> Widget | None:
        stack = self._panel.screen_stack
        focused = stack[-1].focused if stack else None
        return focused if focused is not None and type(focused).__name__ == "Input" else None

    def _look_soon(self) -> None:
        # Not a timer of Textual: one that begins late never fires, and then no key would come through any more.
        asyncio.get_running_loop().call_later(WAIT_SECONDS, self._look)

    def _look(self) -> None:
        field, self._tries = self._field(), self._tries + 1
        if field is None and self._opens() and self._tries < TRIES:
            self._look_soon()
            return
        held, self._held = self._held, []
        for key in held if self._panel.screen_stack else ():
            (field or self._panel.screen)._forward_event(_again(key))


def _again(key: Key) -> Key:
    return Key(key.key, key.character)
