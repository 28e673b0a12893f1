"""Two drafters, profiles or runs side by side: the rows by meaning, the selected one in full, and both files."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Container

from eagle3_tui.bindings import bindings
from eagle3_tui.comparing import Comparison
from eagle3_tui.places_in_text import lines_of
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.widgets.difftable import DiffDetails, DiffTable
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.rawfile import RawFile, RawPart
from eagle3_tui.widgets.small import TooSmall


class DiffScreen(PanelScreen):
    """Draws a `Comparison` that was made elsewhere."""

    BINDINGS = bindings("diff")
    CSS_PATH = "../theme/diff.tcss"
    AUTO_FOCUS = "DiffTable"
    stage = ""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison
        self._texts = tuple(tuple(side.text.split("\n")) for side in (comparison.left, comparison.right))
        self._lines = tuple(lines_of(side.text) for side in (comparison.left, comparison.right))

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            with Container(id="rows"):
                yield DiffTable(classes="panel")
                yield DiffDetails(classes="panel")
            with Container(id="files"):
                yield RawFile(id="left", classes="panel")
                yield RawFile(id="right", classes="panel")
        yield FooterBar(id="footer")

    @property
    def context(self) -> str:
        return "diff file" if isinstance(self.focused, RawFile) else "diff"

    def action_raw(self) -> None:
        """To the files; where there is no room for all, instead of the rows."""
        self.add_class("-raw")
        self.query_one("#left", RawFile).focus()

    def action_only_changes(self) -> None:
        self.query_one(DiffTable).toggle()

    def action_next_change(self) -> None:
        self._change(True, "no further difference")

    def action_previous_change(self) -> None:
        self._change(False, "no difference before this one")

    def _change(self, forward: bool, otherwise: str) -> None:
        if not self.query_one(DiffTable).change(forward):
            self.panel.notice(otherwise)

    def go_back(self) -> None:
        if isinstance(self.focused, RawFile):
            self.remove_class("-raw")
            self.query_one(DiffTable).focus()
        else:
            super().go_back()

    def on_mount(self) -> None:
        self.query_one(DiffTable).show(self.comparison)

    def on_diff_table_selected(self) -> None:
        line = self.query_one(DiffTable).line
        self.query_one(DiffDetails).show(line)
        paths = ((), ()) if line is None else (line.left_paths, line.right_paths)
        sides = (self.comparison.left, self.comparison.right)
        for index, (pane, letter) in enumerate((("#left", "A"), ("#right", "B"))):
            found = (_line(self._lines[index], path) for path in paths[index])
            marked = frozenset(number for number in found if number is not None)
            part = RawPart(letter, sides[index].title, sides[index].note, self._texts[index], marked)
            self.query_one(pane, RawFile).show(part)


def _line(lines: Mapping[str, int], path: str) -> int | None:
    """Where a path stands in a file, or the nearest key above it."""
    while path:
        if path in lines:
            return lines[path]
        path = path.rpartition(".")[0]
    return None
