"""Choosing one of many: a list that is narrowed by what is typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input

from eagle3_tui.bindings import bindings
from eagle3_tui.screens.dialogs import READ, Dialog
from eagle3_tui.text import clean, fit, shorten
from eagle3_tui.widgets.facts import wrapped


@dataclass(frozen=True)
class Choice:
    """One row: what it is called, what it is, and the mark before it."""

    value: str
    title: str
    note: str = ""
    marked: bool = False


class ChooseDialog(Dialog[str]):
    """Answers with the value of the row that was chosen."""

    BINDINGS = bindings("choose", *READ)
    keys = ("choose", "dialog")
    AUTO_FOCUS = "Input"

    def __init__(self, heading: str, choices: Sequence[Choice], empty: str = "nothing to choose from") -> None:
        super().__init__()
        self.heading = heading
        self._choices = list(choices)
        self._empty = empty
        self._typed = ""
        self._at = 0

    @property
    def _shown(self) -> list[Choice]:
        words = self._typed.lower().split()
        return [one for one in self._choices if all(word in f"{one.title} {one.note}".lower() for word in words)]

    def body(self) -> list[Text]:
        look, shown = self.look, self._shown
        if not shown:
            return [*wrapped(look, "nothing here has that name" if self._choices else self._empty, self.room, "warn"),
                    Text("")]  # fmt: skip
        height = max(3, self.app.size.height - 12)
        at = min(self._at, len(shown) - 1)
        first = max(0, min(at - height // 2, len(shown) - height))
        left = min(max(cell_len(one.title) for one in shown), self.room // 2)
        lines = []
        for index, one in enumerate(shown[first : first + height], first):
            here = index == at
            mark = look.glyph("here") if here else look.glyph("ok") if one.marked else " "
            note = shorten(look.remote(clean(one.note, 300)), self.room - left - 4, look.glyph("more"))
            lines.append(
                look.line(
                    (f"{mark} ", "accent bold" if here else "good"),
                    (fit(look.remote(clean(one.title, 300)), left) + "  ", "text bold" if here else "text"),
                    (note, "dim"),
                )
            )
        return [*lines, Text("")]

    def more(self) -> ComposeResult:
        yield Input(placeholder="type to narrow", id="code", select_on_focus=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._typed, self._at = event.value, 0
        self.renew()

    def on_input_submitted(self) -> None:
        self.action_choose()

    def action_choose(self) -> None:
        if shown := self._shown:
            self.dismiss(shown[min(self._at, len(shown) - 1)].value)

    def _move(self, step: int) -> None:
        self._at = min(max(0, self._at + step), max(0, len(self._shown) - 1))
        self.renew()

    def action_up(self) -> None:
        self._move(-1)

    def action_down(self) -> None:
        self._move(1)

    def action_page_back(self) -> None:
        self._move(-10)

    def action_page_on(self) -> None:
        self._move(10)
