"""The line on top of the dashboard: what waits for a person on the left, what it costs on the right."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from eagle3_tui.needs import Need
from eagle3_tui.text import shorten
from eagle3_tui.widgets.picture import Picture


@dataclass(frozen=True)
class Line:
    """``known`` is False before the first picture of a campaign."""

    needs: tuple[Need, ...] = ()
    costs: tuple[str, ...] = ()
    known: bool = False


class NeedLine(Picture):
    def lines(self, width: int, height: int) -> list[Text]:
        line: Line = self.part or Line()
        look = self.look
        if not line.known:
            return [Text("")]
        costs = list(line.costs)
        words, role, glyph = "nothing waits for you", "dim", look.glyph("ok")
        if line.needs:
            worst = line.needs[0]
            glyph = look.glyph({"bad": "bad", "good": "ok"}.get(worst.role, "warn"))
            more = f" (+{len(line.needs) - 1} more)" if len(line.needs) > 1 else ""
            words, role = worst.words + more, worst.role
        # What a person has to do is worth more than what it costs.
        while costs and cell_len(words) + cell_len(look.joined(costs)) + 6 > width:
            costs.pop(0)
        right = look.remote(look.joined(costs))
        left = shorten(look.remote(words), max(1, width - cell_len(right) - 5), look.glyph("more"))
        text = look.line(" ", (f"{glyph} {left}", role if role == "dim" else f"{role} bold"))
        gap = width - text.cell_len - cell_len(right) - 1
        return [text.append_text(look.line(" " * max(1, gap), (right, "dim")))]
