"""One side's file as it lies on disk, with the selected row's places marked."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.text import Text

from eagle3_tui.bindings import bindings
from eagle3_tui.text import clean, shorten, visible
from eagle3_tui.widgets.scroller import Scroller


@dataclass(frozen=True)
class RawPart:
    """A file's lines, and those that say what the selected row says."""

    side: str
    title: str
    note: str
    text: tuple[str, ...]
    marked: frozenset[int] = field(default_factory=frozenset)


class RawFile(Scroller):
    """Follows the selection: the first marked line is brought into view."""

    BINDINGS = bindings("list", "scroll")

    _placed = 0
    """The position that `reveal` chose last: until somebody scrolls, it follows the height."""

    def show(self, part: RawPart | None) -> None:
        before: RawPart | None = self.part
        super().show(part)
        if part is not None and part != before and part.marked:
            self.reveal(min(part.marked), anew=before is None or before.text != part.text)

    def on_resize(self) -> None:
        part: RawPart | None = self.part
        if part is not None and part.marked:
            self.reveal(min(part.marked), anew=self.top == self._placed)

    def reveal(self, line: int, *, anew: bool) -> None:
        """Bring a line into view, a third from the top, if it is not there already: in the view that there is, or
        ``anew`` in that of the file's beginning."""
        height = max(1, self.size.height)
        top = 0 if anew else self.top
        if not top <= line < top + height - 1:
            top = max(0, line - height // 3)
        self._placed = top
        self._go(top)

    def title(self, width: int) -> Text:
        part: RawPart | None = self.part
        if part is None:
            return Text("File")
        room = width - len(part.side) - 3 - len(part.note) - 3
        title = clean(part.title, 400)
        # The end of a path tells more than its beginning.
        title = title if len(title) <= room else self.look.glyph("more") + title[len(title) - room + 1 :]
        words = self.look.joined([part.side, title, clean(part.note, 40)])
        return Text(self.look.remote(shorten(words, width, self.look.glyph("more"))))

    def all_lines(self, width: int) -> list[Text]:
        part: RawPart | None = self.part
        if part is None:
            return []
        look, digits = self.look, len(str(len(part.text)))
        rows = []
        for number, line in enumerate(part.text):
            marked = number in part.marked
            mark = look.glyph("here") if marked else " "
            words = shorten(look.remote(visible(line[:2000])), max(1, width - digits - 3), look.glyph("more"))
            rows.append(
                look.line((f"{number + 1:>{digits}}{mark} ", "accent bold" if marked else "dim"),
                          (words, "text bold" if marked else "text"))
            )  # fmt: skip
        return rows

    def text_to_copy(self) -> str:
        part: RawPart | None = self.part
        return "\n".join(part.text) if part is not None else ""
