"""A question that is answered by typing a name: for what cannot be taken back."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input

from eagle3_tui.bindings import bindings
from eagle3_tui.screens.dialogs import READ, Dialog
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import wrapped


class TypedDialog(Dialog[bool]):
    BINDINGS = bindings(*READ)
    keys = ("dialog",)
    severity = "error"
    AUTO_FOCUS = "Input"

    def __init__(self, heading: str, words: str, name: str, facts: Sequence[tuple[str, str]] = ()) -> None:
        """``facts`` stand under ``words``, each whole, however long."""
        super().__init__()
        self.heading = heading
        self._words = words
        self._name = name
        self._facts = facts
        self._wrong = ""

    def body(self) -> list[Text]:
        lines = [*wrapped(self.look, self._words, self.room), *[Text("")] * bool(self._facts)]
        left = max((len(name) for name, _ in self._facts), default=0)
        for name, value in self._facts:
            first, *rest = wrapped(self.look, value, self.room, indent=" " * (left + 2)) or [Text("")]
            lines += [self.look.line((name.ljust(left + 2), "dim"), first.plain.strip()), *rest]
        lines.append(Text(""))
        if self._wrong:
            lines += wrapped(self.look, self._wrong, self.room, "warn")
        asked = f"To go on, type {clean(self._name, 100)} and press enter."
        return [*lines, *wrapped(self.look, asked, self.room, "dim")]

    def more(self) -> ComposeResult:
        yield Input(placeholder="name", id="code", select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() == self._name:
            self.dismiss(True)
            return
        self._wrong = f"'{clean(event.value, 60)}' is another name" if event.value else ""
        self.renew()
