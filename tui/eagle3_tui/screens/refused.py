"""A refused act: the findings that stop it, and the field in which their codes are typed to go on all the same."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input

from eagle3_backend.findings import Finding, Severity
from eagle3_tui.bindings import bindings
from eagle3_tui.screens.dialogs import READ, Dialog
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import finding_lines, wrapped


class RefusedDialog(Dialog[tuple[str, ...]]):
    """Answers with the codes that were accepted: all that block, each typed."""

    BINDINGS = bindings(*READ)
    keys = ("dialog",)
    severity = "error"
    heading = "Refused"
    AUTO_FOCUS = "Input"

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__()
        self._findings = findings
        self._codes = tuple(dict.fromkeys(one.code for one in findings if one.severity is Severity.ERROR))
        self._wrong = ""

    def body(self) -> list[Text]:
        look = self.look
        lines: list[Text] = []
        for finding in self._findings:
            lines += [*finding_lines(finding, look, self.room), Text("")]
        if self._wrong:
            lines += wrapped(look, self._wrong, self.room, "warn")
        asked = "To go on all the same, type " + " ".join(clean(code, 80) for code in self._codes)
        return [*lines, *wrapped(look, f"{asked} and press enter; the journal keeps it.", self.room, "dim")]

    def more(self) -> ComposeResult:
        yield Input(placeholder="code", id="code", select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        typed = tuple(event.value.replace(",", " ").split())
        missing = [code for code in self._codes if code not in typed]
        if not missing:
            self.dismiss(self._codes)
            return
        self._wrong = f"'{clean(event.value, 60)}' does not accept {clean(missing[0], 80)}" if typed else ""
        self.renew()
