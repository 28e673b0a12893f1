"""Leaving the panel: by keys, by signals, and not while something would be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.text import Text

from eagle3_backend.control.snapshot import Snapshot
from eagle3_tui import rules
from eagle3_tui.deeds import Deeds
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.text import clean

QUIT_SECONDS = 2.0
INTERRUPTED = 130


class Leaving(Deeds, inherit_bindings=False):
    """The part of the panel that knows how to end."""

    picture: Snapshot
    monotonic: Callable[[], float]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lent = False
        """Whether another program has the terminal, or had it just now."""
        self.left: Callable[[int], object] = lambda status: None
        """Hears, once the panel begins to leave, with which status."""
        self._interrupted = -QUIT_SECONDS

    def exit(self, result: Any = None, return_code: int = 0, message: Any = None) -> None:
        super().exit(result, return_code, message)
        self.left(return_code)

    def _leave_by_signal(self, result: None, status: int) -> None:
        """An interrupt that was typed into a program with our terminal was not meant for us."""
        if not (self.lent and status == INTERRUPTED):
            self.exit(result, status)

    def take_back_terminal(self) -> None:
        self.lent = False

    def action_interrupt(self) -> None:
        """Copy what is selected, else a hint; twice leaves, above any dialog and with edits, too."""
        now = self.monotonic()
        if now - self._interrupted < QUIT_SECONDS:
            self.action_leave()
        self._interrupted = now
        selected = getattr(self.screen.focused, "selected_text", "") or self.screen.get_selected_text()
        if selected:
            self.copy(selected)
            return
        self.notice("ctrl+c again or q leaves the panel; runs go on")

    async def action_quit(self) -> None:
        self.unless_unsaved("Leave the panel", self.action_leave)

    def unless_unsaved(self, heading: str, go_on: Callable[[], None]) -> None:
        """Go on at once, or ask first where edits would be lost by it."""
        unsaved = [screen.unsaved for screen in self.screen_stack if isinstance(screen, PanelScreen) and screen.unsaved]
        if not unsaved:
            go_on()
            return
        from eagle3_tui.screens.dialogs import ConfirmDialog

        dialog = ConfirmDialog(heading, unsaved[-1], "leave without saving")
        self.push_screen(dialog, lambda sure: go_on() if sure else None)

    def action_leave(self) -> None:
        """Leave, and say what goes on without the panel."""
        view = rules.active(self.picture)
        host = clean(self.picture.host.name, 64)
        words = f"{view.name} goes on on {host}; eagle3-tui shows it again." if view else ""
        self.exit(message=Text(self.look.remote(words)) if words else None)
