"""The rows of a comparison: what kind of difference, the name, both values, and why it matters."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.text import Text
from textual.message import Message

from eagle3_tui.bindings import bindings
from eagle3_tui.comparing import Comparison, Line
from eagle3_tui.text import clean, fit, shorten
from eagle3_tui.theme import Look, Piece
from eagle3_tui.widgets.facts import wrapped
from eagle3_tui.widgets.picture import Picture

KINDS = {
    "breaking": ("bad", "bad", "breaks"),
    "unknown": ("warn", "warn", "unknown"),
    "changed": ("run", "active", "changed"),
    "harmless": ("dot", "text", "harmless"),
    "spelling": ("idle", "dim", "spelling"),
    "default": ("dots", "dim", "default"),
    "same": ("ok", "dim", "same"),
}
"""Glyph, role and word of each kind of row, in the order in which they are counted."""

WORD = 8
WHY_WIDTH = 110
"""From this width on a row says itself why it matters; the details below say it everywhere."""


VALUE = 24
"""Cells that a value gets beside a reason; more would leave the reason none."""


def kind_piece(kind: str, look: Look) -> tuple[str, str]:
    glyph, role, word = KINDS[kind]
    return f"{look.glyph(glyph)} {word:<{WORD}}", role


class DiffTable(Picture, can_focus=True):
    """Holds the selected row. ``everything`` shows the rows that do not differ, too."""

    BINDINGS = bindings("list", "scroll")

    class Selected(Message):
        """Another row is selected, or there are other rows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.everything = False
        self.at = 0
        self._top = 0

    @property
    def rows(self) -> list[Line]:
        part: Comparison | None = self.part
        return [line for line in part.lines if self.everything or line.differs] if part is not None else []

    @property
    def line(self) -> Line | None:
        """The selected row."""
        rows = self.rows
        return rows[min(self.at, len(rows) - 1)] if rows else None

    def show(self, part: Comparison | None) -> None:
        if part is not self.part:
            self.at = self._top = 0
        super().show(part)
        self.post_message(self.Selected())

    def _select(self, at: int) -> None:
        self.at = min(max(0, at), max(0, len(self.rows) - 1))
        self.redraw()
        self.post_message(self.Selected())

    def title(self, width: int) -> Text:
        part: Comparison | None = self.part
        if part is None:
            return Text("Diff")
        shown = [f"{number} {kind}" for kind in KINDS if (number := part.counts[kind])]
        words = self.look.joined(["Diff", part.verdict, *shown])
        return Text(self.look.remote(shorten(words, width, self.look.glyph("more"))))

    def lines(self, width: int, height: int) -> list[Text]:
        rows = self.rows
        if self.part is None:
            return []
        sides = self._sides(width)
        if not rows:
            return [sides, *wrapped(self.look, "no difference; = shows what is the same", width - 2, "good", " ")]
        plan = self._plan(rows, height - 1)
        widths = _widths(rows, width)
        drawn = []
        for entry in self._window(plan, height - 1):
            if isinstance(entry, str):
                heading = shorten(self.look.remote(clean(entry or "top", 60)), width - 2, self.look.glyph("more"))
                drawn.append(self.look.line((f"  {heading}", "accent")))
            else:
                drawn.append(self.look.line(*self._row(rows[entry], entry == self.at, widths)))
        return [sides, *drawn]

    def _plan(self, rows: list[Line], height: int) -> list[str | int]:
        """Headings and numbers of rows in their order; without headings where only they would make it too long."""
        headed = self.everything or len(rows) + len({line.group for line in rows}) <= height
        plan: list[str | int] = []
        for index, line in enumerate(rows):
            if headed and (index == 0 or line.group != rows[index - 1].group):
                plan.append(line.group)
            plan.append(index)
        return plan

    def _window(self, plan: list[str | int], height: int) -> list[str | int]:
        """The stretch that holds the selected row, and its heading where it is the first below one."""
        at = plan.index(min(self.at, len(self.rows) - 1))
        top = min(max(self._top, at - height + 1), max(0, at - 1))
        self._top = max(0, min(top, len(plan) - height))
        return plan[self._top : self._top + height]

    def _sides(self, width: int) -> Text:
        """Which file is A and which is B, in half of a line each."""
        pieces: list[Piece] = []
        for letter, side in (("A", self.part.left), ("B", self.part.right)):
            words = self.look.joined([clean(side.title, 400), clean(side.note, 40)])
            pieces += [
                (f"  {letter} ", "accent bold"),
                (_tail(self.look.remote(words), width // 2 - 5, self.look.glyph("more")), "dim"),
            ]
        return self.look.line(*pieces)

    def _row(self, line: Line, here: bool, widths: tuple[int, int, int]) -> list[Piece]:
        look, more = self.look, self.look.glyph("more")
        word, role = kind_piece(line.kind, look)
        name, value, why = widths
        text = "text bold" if here else role if role == "dim" else "text"
        shown = [look.remote(clean(one, 300)) for one in (line.left, line.right)]
        pieces: list[Piece] = [
            (f"{look.glyph('here')} " if here else "  ", "accent bold"),
            (f"{word}  ", role),
            (_tail(look.remote(clean(line.name, 200)), name, more) + "  ", text),
            (fit(shown[0], value, more) + "  ", text),
            (fit(shown[1], value, more), text),
        ]
        if why:
            pieces.append(("  " + shorten(look.remote(clean(_reason(line), 300)), why, more), "dim"))
        return pieces

    def text_to_copy(self) -> str:
        part: Comparison | None = self.part
        return part.text(self.everything) if part is not None else ""

    def toggle(self) -> None:
        """All rows, or only those that differ; the selected one stays selected, or the next one before it."""
        part: Comparison | None = self.part
        selected = self.line
        self.everything = not self.everything
        if part is None or selected is None:
            self._select(0)
            return
        place = {id(line): index for index, line in enumerate(part.lines)}
        self._select(sum(1 for line in self.rows if place[id(line)] < place[id(selected)]))

    def change(self, forward: bool) -> bool:
        """Select the next row that differs, or the one before; False where there is none."""
        rows = self.rows
        candidates = range(self.at + 1, len(rows)) if forward else range(self.at - 1, -1, -1)
        found = next((index for index in candidates if rows[index].differs), None)
        if found is not None:
            self._select(found)
        return found is not None

    def action_up(self) -> None:
        self._select(self.at - 1)

    def action_down(self) -> None:
        self._select(self.at + 1)

    def action_page_back(self) -> None:
        self._select(self.at - max(1, self.size.height - 2))

    def action_page_on(self) -> None:
        self._select(self.at + max(1, self.size.height - 2))

    def action_first(self) -> None:
        self._select(0)

    def action_last(self) -> None:
        self._select(len(self.rows))


def _widths(rows: list[Line], width: int) -> tuple[int, int, int]:
    """Cells for the name, for each value, and for the reason, where there is room for one."""
    room = width - 2 - WORD - 2 - 2 - 4 - 1
    longest = max(cell_len(line.name) for line in rows)
    lengths = sorted(max(cell_len(line.left), cell_len(line.right)) for line in rows)
    # A few long values are cut; they do not take the room of all others.
    usual = min(VALUE, max(VALUE // 2, lengths[len(lengths) * 5 // 6]))
    why = 0
    if width >= WHY_WIDTH:
        told = max(cell_len(_reason(line)) for line in rows)
        why = max(8, min(told, max(room // 3, room - 2 - longest - 2 * usual)))
        room -= why + 2
    name = max(8, min(longest, max(room * 9 // 20, room - 2 * usual)))
    return name, max(6, min(lengths[-1], (room - name) // 2)), why


def _reason(line: Line) -> str:
    """Why a row matters, beside its kind: the word "breaks" stands there already."""
    return line.words.removeprefix("breaks ")


def _tail(name: str, width: int, more: str) -> str:
    """A dotted name in ``width`` cells; what is cut off is its beginning, as its end tells more."""
    if cell_len(name) <= width:
        return fit(name, width)
    while name and cell_len(name) > width - cell_len(more):
        name = name[1:]
    return fit(more + name, width)


class DiffDetails(Picture):
    """The selected row in full: why it matters, both values, and every place that says so."""

    def title(self, width: int) -> Text:
        line: Line | None = self.part
        return Text(self.look.remote(shorten(clean(line.name, 200), width, self.look.glyph("more"))) if line else "Row")

    def lines(self, width: int, height: int) -> list[Text]:
        line: Line | None = self.part
        if line is None:
            return []
        look, room = self.look, width - 2
        glyph, role, word = KINDS[line.kind]
        # What breaks says so itself: "breaks tensor shapes on vllm".
        words = ": ".join(part for part in ("" if line.kind == "breaking" else word, clean(line.words, 600)) if part)
        told = wrapped(look, f"{look.glyph(glyph)} {words}", room, f"{role} bold" if line.differs else role, " ")
        for side, value, paths in (("A", line.left, line.left_paths), ("B", line.right, line.right_paths)):
            words = f"{side} {clean(value, 1500)}"
            where = f"at {', '.join(clean(path, 200) for path in paths)}" if paths else ""
            if cell_len(words) + cell_len(where) + 3 <= room:
                told.append(look.line((f" {look.remote(words)}", "text"), (f"  {look.remote(where)}", "dim")))
            else:
                told += wrapped(look, words, room, "text", " ") + wrapped(look, where, room, "dim", "   ")
        return told
