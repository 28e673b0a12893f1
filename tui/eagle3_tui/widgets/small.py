"""What a terminal that is too small for any panel shows instead."""

from __future__ import annotations

from rich.text import Text

from eagle3_tui.text import shorten
from eagle3_tui.widgets.picture import Picture

NEEDED = (60, 16)


class TooSmall(Picture):
    def lines(self, width: int, height: int) -> list[Text]:
        now = self.app.size
        words = f"{NEEDED[0]}x{NEEDED[1]} needed, now {now.width}x{now.height}"
        longer = f"{words} (jobs keep running)"
        shown = longer if len(longer) <= width else words
        row = self.look.line((shorten(shown, width, "").center(width), "warn"))
        return [Text("")] * ((height - 1) // 2) + [row]
