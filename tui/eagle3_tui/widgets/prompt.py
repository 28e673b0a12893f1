"""One line to type in, where the footer was: what to search for, what to show, where to go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget

from eagle3_tui.bindings import bindings

if TYPE_CHECKING:
    from textual.widgets import Input

    from eagle3_tui.screens.base import PanelScreen


class Prompt(Horizontal):
    """Calls ``then`` with the text on enter, and not at all on esc; goes away by itself."""

    BINDINGS = bindings("line")

    def __init__(
        self,
        label: str,
        text: str,
        then: Callable[[str], None],
        hint: str,
        known: Sequence[str],
        back_to: Widget | None,
    ) -> None:
        super().__init__(id="prompt")
        self._known = known
        self._label, self._text, self._hint = label, text, hint
        self._then = then
        self._back_to = back_to

    def compose(self) -> ComposeResult:
        # Loaded on first use: most starts of the panel need no line.
        from textual.suggester import SuggestFromList
        from textual.widgets import Input, Static

        yield Static(self._label, id="label", markup=False)
        suggester = SuggestFromList(self._known, case_sensitive=True) if self._known else None
        yield Input(self._text, placeholder=self._hint, suggester=suggester, compact=True, select_on_focus=True)

    def on_mount(self) -> None:
        self.query_one("Input").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()
        self._then(event.value)

    def action_complete_line(self) -> None:
        """Take over what is suggested."""
        from textual.widgets import Input

        field = self.query_one(Input)
        if field._suggestion:
            field.value = field._suggestion
            field.cursor_position = len(field.value)

    def action_leave_line(self) -> None:
        self._close()

    def _close(self) -> None:
        screen = cast("PanelScreen", self.screen)
        self.remove()
        screen.line_done(self._back_to)
