"""A table with a cursor: columns as wide as they need to be, the last one takes what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.text import Text
from textual.message import Message

from eagle3_tui.bindings import bindings
from eagle3_tui.text import clean, fit, shorten
from eagle3_tui.theme import Piece
from eagle3_tui.widgets.facts import wrapped
from eagle3_tui.widgets.picture import Picture

WIDEST = 40
"""Cells of a column that is not the last."""


@dataclass(frozen=True)
class Row:
    """``cells`` are (text, role); ``key`` tells the row from others."""

    key: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """``notes`` stand above the rows; ``empty`` is said where there is none; ``last`` are the least cells of the last
    column."""

    title: str
    heads: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    empty: str = ""
    notes: tuple[Text, ...] = ()
    last: int = 12


class TablePane(Picture, can_focus=True):
    """Holds the cursor; the row that it marks stays marked while rows come and go."""

    BINDINGS = bindings("rows", "list", "scroll")

    class Marked(Message):
        """Another row is marked."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.marked = ""
        self._top = 0

    @property
    def table(self) -> Table:
        return self.part or Table("")

    def show(self, part: Table) -> None:
        keys = [row.key for row in part.rows]
        before = self.marked
        if self.marked not in keys:
            self.marked = keys[0] if keys else ""
        super().show(part)
        if self.marked != before:
            self.post_message(self.Marked())

    def title(self, width: int) -> Text:
        return Text(shorten(self.look.remote(self.table.title), width, self.look.glyph("more")))

    def lines(self, width: int, height: int) -> list[Text]:
        table = self.table
        notes = list(table.notes[: max(0, height - 3)])
        if not table.rows:
            return [*notes, *wrapped(self.look, table.empty, width, "dim", " ")]
        widths = self._widths(table, width)
        head = self._line("", tuple((head, "dim") for head in table.heads), widths)
        room = max(1, height - len(notes) - 1)
        at = next((index for index, row in enumerate(table.rows) if row.key == self.marked), 0)
        self._top = max(0, min(max(self._top, at - room + 1), at, len(table.rows) - 1))
        shown = table.rows[self._top : self._top + room]
        return [*notes, head, *(self._line(row.key, row.cells, widths) for row in shown)]

    def _widths(self, table: Table, width: int) -> list[int]:
        columns = len(table.heads)
        cells = [[cell_len(clean(row.cells[column][0], 500)) for row in table.rows] for column in range(columns)]
        widths = [min(WIDEST, max(cell_len(head), *found)) for head, found in zip(table.heads, cells, strict=True)]
        room = width - 3 - 2 * (columns - 1)
        # Where it is narrow, the widest give way first.
        while sum(widths[:-1]) > room - table.last and max(widths[:-1], default=0) > 6:
            widths[widths.index(max(widths[:-1]))] -= 1
        widths[-1] = max(1, room - sum(widths[:-1]))
        return widths

    def _line(self, key: str, cells: tuple[tuple[str, str], ...], widths: list[int]) -> Text:
        here = bool(key) and key == self.marked
        pieces: list[Piece] = [(f"{self.look.glyph('here')} " if here else "  ", "accent bold")]
        for index, ((words, role), width) in enumerate(zip(cells, widths, strict=True)):
            text = fit(self.look.remote(clean(words, 500)), width, self.look.glyph("more"))
            pieces.append((("  " if index else "") + text, f"{role} bold" if here and index == 0 else role))
        return self.look.line(*pieces)

    def mark(self, key: str) -> None:
        if key != self.marked:
            self.marked = key
            self.redraw()
            self.post_message(self.Marked())

    def _move(self, step: int) -> None:
        keys = [row.key for row in self.table.rows]
        if keys:
            at = keys.index(self.marked) if self.marked in keys else 0
            self.mark(keys[min(len(keys) - 1, max(0, at + step))])

    def action_up(self) -> None:
        self._move(-1)

    def action_down(self) -> None:
        self._move(1)

    def action_page_back(self) -> None:
        self._move(-max(1, self.size.height - 2))

    def action_page_on(self) -> None:
        self._move(max(1, self.size.height - 2))

    def action_first(self) -> None:
        self._move(-len(self.table.rows))

    def action_last(self) -> None:
        self._move(len(self.table.rows))

    def text_to_copy(self) -> str:
        """The marked row."""
        row = next((row for row in self.table.rows if row.key == self.marked), None)
        return "  ".join(clean(words, 2000) for words, _ in row.cells).rstrip() if row else ""

    def save_files(self) -> dict[str, str]:
        rows = ["\t".join(self.table.heads)]
        rows += ["\t".join(clean(words, 2000) for words, _ in row.cells) for row in self.table.rows]
        more_files = getattr(self.screen, "more_files", dict)
        return {"table.tsv": "\n".join(rows) + "\n", **more_files()}
