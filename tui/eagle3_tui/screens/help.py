"""All keys, by group, from the key table."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult

from eagle3_tui.bindings import bindings
from eagle3_tui.keymap import KEYS, names_of
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.widgets.facts import wrapped
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.scroller import Scroller

_WHERE = {"pipeline": "in the pipeline", "log": "in a log"}
_KEYS = 14


class Help(Scroller):
    BINDINGS = bindings("list", "scroll")

    def title(self, width: int) -> Text:
        return Text("Help")

    def all_lines(self, width: int) -> list[Text]:
        look = self.look
        lines: list[Text] = []
        for group in dict.fromkeys(key.group for key in KEYS):
            lines += [look.line((group, "accent bold"))]
            for key in (one for one in KEYS if one.group == group):
                notes = ", ".join(part for part in (_WHERE.get(key.scope, ""), key.danger) if part)
                words = key.about + (f" ({notes})" if notes else "")
                rows = wrapped(look, words, width - _KEYS - 2)
                names = names_of(key, look.ascii_only)
                lines.append(look.line((f"  {names:<{_KEYS - 2}}  ", "accent")).append_text(rows[0]))
                lines += [Text(" " * _KEYS + "  ", end="").append_text(row) for row in rows[1:]]
            lines.append(Text(""))
        lines += wrapped(look, "Runs live on their host: closing the panel or losing the link never ends one.", width)
        return lines


class HelpScreen(PanelScreen):
    AUTO_FOCUS = "Help"
    stage = ""
    context = "help"

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield Help(classes="panel")
        yield FooterBar(id="footer")
