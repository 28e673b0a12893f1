"""All keys, by group, from the key table."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container

from eagle3_tui.bindings import bindings
from eagle3_tui.keymap import CONTEXTS, KEYS, Key, in_scope, names_of
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.widgets.facts import wrapped
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.scroller import Scroller
from eagle3_tui.widgets.small import TooSmall

_WHERE = {"pipeline": "in the pipeline", "log": "in a log"}
_KEYS = 14


class Help(Scroller):
    BINDINGS = bindings("list", "scroll")

    def title(self, width: int) -> Text:
        return Text("Help")

    def all_lines(self, width: int) -> list[Text]:
        look = self.look
        screen = self.screen
        assert isinstance(screen, HelpScreen)
        here = [key for key in in_scope(*CONTEXTS.get(screen.asked_in, ())) if key.scope != "all"]
        lines = [*self._section(f"Here: {screen.asked_in}", here, width)] if here else []
        for group in dict.fromkeys(key.group for key in KEYS):
            lines += self._section(group, [key for key in KEYS if key.group == group], width)
        lines += wrapped(look, "Runs live on their host: closing the panel or losing the link never ends one.", width)
        return lines

    def _section(self, heading: str, keys: list[Key], width: int) -> list[Text]:
        look = self.look
        lines = [look.line((heading, "accent bold"))]
        for key in keys:
            notes = ", ".join(part for part in (_WHERE.get(key.scope, ""), key.danger) if part)
            words = key.about + (f" ({notes})" if notes else "")
            rows = wrapped(look, words, width - _KEYS - 2)
            names = names_of(key, look.ascii_only) or f":{key.id}"
            lines.append(look.line((f"  {names:<{_KEYS - 2}}  ", "accent")).append_text(rows[0]))
            lines += [Text(" " * _KEYS + "  ", end="").append_text(row) for row in rows[1:]]
        return [*lines, Text("")]


class HelpScreen(PanelScreen):
    AUTO_FOCUS = "Help"
    stage = ""
    context = "help"

    def __init__(self, asked_in: str = "") -> None:
        """``asked_in`` is the context whose keys come first."""
        super().__init__()
        self.asked_in = asked_in

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            yield Help(classes="panel")
        yield FooterBar(id="footer")
