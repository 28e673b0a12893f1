"""A picture that is longer than its panel: the same lines, scrolled."""

from __future__ import annotations

from rich.text import Text

from eagle3_tui.widgets.picture import Picture


class Scroller(Picture, can_focus=True):
    """Subclasses say in `all_lines` everything there is; the keys of the scopes ``list`` and ``scroll`` move it."""

    top = 0

    def all_lines(self, width: int) -> list[Text]:
        raise NotImplementedError

    def lines(self, width: int, height: int) -> list[Text]:
        everything = self.all_lines(width - 2)
        self.top = min(max(0, self.top), max(0, len(everything) - height))
        shown = everything[self.top : self.top + height]
        rows = [Text(" ", end="").append_text(line) for line in shown]
        below = len(everything) - self.top - height
        if below > 0 and rows:
            rows[-1] = self.look.line((f" {self.look.glyph('down')} {below + 1} more lines", "dim"))
        return rows

    def _go(self, top: int) -> None:
        self.top = top
        self.redraw()

    def action_up(self) -> None:
        self._go(self.top - 1)

    def action_down(self) -> None:
        self._go(self.top + 1)

    def action_page_back(self) -> None:
        self._go(self.top - max(1, self.size.height - 2))

    def action_page_on(self) -> None:
        self._go(self.top + max(1, self.size.height - 2))

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(1_000_000)
