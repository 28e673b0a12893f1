"""A widget that draws whole lines from its part of the snapshot and repaints only the lines that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from eagle3_tui.app import Panel
    from eagle3_tui.theme import Look


def segments(text: Text, console: Console) -> list[Segment]:
    """What `Text.render` gives, without its detours where styles stand side by side, as in `Look.line`."""
    made, at, plain = [], 0, text.plain
    for span in text.spans:
        if span.start != at or not isinstance(span.style, Style):
            return list(text.render(console))
        made.append(Segment(plain[at : span.end], span.style))
        at = span.end
    if at != len(plain) or text.style or text.end:
        return list(text.render(console))
    return made


class Picture(Widget):
    """Subclasses say in `lines` what stands in a given size; `show` hands them their part."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.part: Any = None
        self._strips: list[Strip] = []
        self._drawn = Size(-1, -1)
        self._title = ""

    @property
    def panel(self) -> Panel:
        return cast("Panel", self.app)

    @property
    def look(self) -> Look:
        return self.panel.look

    def lines(self, width: int, height: int) -> list[Text]:
        """The content, at most ``height`` lines; each is cut or filled to ``width`` by the caller."""
        raise NotImplementedError

    def strips(self, width: int, height: int, base: Style) -> list[Strip]:
        """The lines as they are painted on ``base``."""
        return [
            Strip(segments(text, self.app.console)).apply_style(base).adjust_cell_length(width, base)
            for text in self.lines(width, height)
        ]

    def title(self, width: int) -> Text | None:
        """What the border says, in at most ``width`` cells; None leaves it."""
        return None

    def show(self, part: Any) -> None:
        """Draw ``part`` if it differs from what is drawn."""
        if part != self.part:
            self.part = part
            self.redraw()

    def redraw(self) -> None:
        """Build the lines again and repaint those that changed."""
        if not self.is_attached or not self.size or self._drawn != self.size:
            self._drawn = Size(-1, -1)
            self.refresh()
            return
        before = self._strips
        self._build()
        width = self.size.width
        changed = [y for y, strip in enumerate(self._strips) if y >= len(before) or strip != before[y]]
        # One region for lines that lie together: each costs the compositor more than a line does.
        start = 0
        for at, y in enumerate(changed):
            if at + 1 == len(changed) or changed[at + 1] != y + 1:
                self.refresh(Region(0, changed[start], width, y - changed[start] + 1))
                start = at + 1

    def _build(self) -> None:
        width, height = self.size
        base = self.visual_style.rich_style
        self._strips = self.strips(width, height, base)[:height]
        blank = Strip.blank(width, base)
        self._strips += [blank] * (height - len(self._strips))
        self._drawn = self.size
        self.retitle()

    def retitle(self) -> None:
        """Let the border say what is true now."""
        # Textual keeps two corners, two edges and two blanks.
        title = self.title(max(0, self.outer_size.width - 6))
        if title is not None and title.markup != self._title:
            self._title = title.markup
            self.border_title = title if title.plain else None  # a Text is never read as markup

    def render_line(self, y: int) -> Strip:
        if self._drawn != self.size:
            self._build()
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def notify_style_update(self) -> None:
        self._drawn = Size(-1, -1)
        super().notify_style_update()
