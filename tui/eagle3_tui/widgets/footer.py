"""The last line: the keys that work now, each whole, and for a few seconds a message."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from eagle3_tui.keymap import CONTEXTS, ROOTS, Key, in_scope, name_of
from eagle3_tui.text import fit
from eagle3_tui.theme import Piece
from eagle3_tui.widgets.picture import Picture


@dataclass(frozen=True)
class Hints:
    """What the footer shows: the keys of a context, which are off, and a message instead of them."""

    context: str = "pipeline"
    off: frozenset[str] = frozenset()
    notice: str = ""
    role: str = "text"


def chosen(context: str, width: int) -> list[Key]:
    """The footer keys of ``context`` that fit ``width``: by rank what is kept, in the table's order how it is shown."""
    outermost = context in ROOTS
    known = in_scope(*CONTEXTS.get(context, ("all",)))
    shown = [key for key in known if key.footer and not (outermost and key.id == "back")]
    kept: list[Key] = []
    used = 1
    for key in sorted(shown, key=lambda one: one.footer):
        cost = len(name_of(key.keys[0])) + 1 + len(key.help) + (2 if kept else 0)
        if used + cost <= width:
            kept.append(key)
            used += cost
    return [key for key in shown if key in kept]


class FooterBar(Picture):
    def lines(self, width: int, height: int) -> list[Text]:
        hints: Hints = self.part or Hints()
        if hints.notice:
            return [self.look.line((fit(" " + hints.notice, width, self.look.glyph("more")), hints.role))]
        pieces: list[Piece] = [" "]
        for key in chosen(hints.context, width):
            off = key.id in hints.off
            pieces += [
                (name_of(key.keys[0], self.look.ascii_only), "off" if off else "accent bold"),
                (f" {key.help}  ", "off" if off else "dim"),
            ]
        text = self.look.line(*pieces)
        text.rstrip()
        return [text]
