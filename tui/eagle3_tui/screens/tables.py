"""What the screens with a table share: the table, the marked row in full below it, and news now and then."""

from __future__ import annotations

from dataclasses import replace

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Resize
from textual.geometry import Size

from eagle3_backend.control.commands import Command
from eagle3_backend.control.snapshot import LogView, Snapshot
from eagle3_tui.bindings import bindings
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.logpane import words_of
from eagle3_tui.widgets.scroller import Scroller
from eagle3_tui.widgets.small import TooSmall
from eagle3_tui.widgets.table import Table, TablePane

AGES_SECONDS = 1.0
"""So old may an age in a table be while pictures come."""


class Detail(Scroller):
    """The marked row in full."""

    BINDINGS = bindings("list", "scroll")

    def title(self, width: int) -> Text:
        return Text("Detail")

    def all_lines(self, width: int) -> list[Text]:
        screen = self.screen
        assert isinstance(screen, TableScreen)
        return screen.detail(screen.marked, width)

    def text_to_copy(self) -> str:
        return "\n".join(line.plain for line in self.all_lines(200))


class TableScreen(PanelScreen):
    """Subclasses say what stands in the table and in the detail, what to ask control for, and how often."""

    BINDINGS = bindings("rows", "filter")
    AUTO_FOCUS = "TablePane"
    EVERY = 0.0
    """Seconds between two questions to control; 0: only when the screen is opened, and when the operator wants it."""
    context = "rows"

    def __init__(self, stage: str = "") -> None:
        super().__init__()
        self._stage = stage
        self._asked_at = 0.0
        self._asking = False
        self.trouble = ""
        self._words = ""
        self._drawn_in = Size(0, 0)
        self._told_of: Snapshot | None = None
        self._told_at = 0.0

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            yield TablePane(classes="panel")
            yield Detail(classes="panel")
        yield FooterBar(id="footer")

    @property
    def stage(self) -> str:
        return self._stage

    @property
    def marked(self) -> str:
        return self.query_one(TablePane).marked

    def table(self) -> Table:
        raise NotImplementedError

    def detail(self, key: str, width: int) -> list[Text]:
        """The row in full."""
        raise NotImplementedError

    def more_files(self) -> dict[str, str]:
        """What is saved beside the table: name and content."""
        return {}

    def question(self) -> Command | None:
        """What to ask control for; None when the snapshot has it all."""
        return None

    def take(self, answer: object) -> None:
        """The answer to the question."""

    def on_mount(self) -> None:
        self.refresh_data()

    def refresh_data(self) -> None:
        command = self.question()
        if command is None or self._asking:
            return
        self._asking = True
        self._asked_at = self.panel.monotonic()

        def come(answer: object) -> None:
            self._asking, self.trouble = False, ""
            self.take(answer)
            self.show_again()

        def refused(problem: BaseException) -> None:
            self._asking, self.trouble = False, words_of(problem)
            self.show_again()

        self.panel.inquire(command, come, refused)

    def tick(self) -> None:
        super().tick()
        if self.EVERY and self.panel.monotonic() - self._asked_at >= self.EVERY:
            self.refresh_data()

    def on_resize(self, event: Resize) -> None:
        if self._drawn_in != event.size:  # notes above a table are as wide as the terminal
            self.redraw()

    def show(self, snapshot: Snapshot) -> None:
        self._told_of, self._told_at = _without_log(snapshot), self.panel.monotonic()
        self.redraw()
        super().show(snapshot)

    def show_news(self, snapshot: Snapshot) -> None:
        """Lines of a log come ten times a second, and no table tells of them; ages go on with them."""
        if self.panel.monotonic() - self._told_at < AGES_SECONDS and _without_log(snapshot) == self._told_of:
            super().show(snapshot)
        else:
            self.show(snapshot)

    def redraw(self) -> None:
        if self.is_attached and self.is_composed:
            self._drawn_in = self.app.size
            table = self._narrowed(self.table())
            self.query_one(TablePane).show(table)
            detail = self.query_one(Detail)
            # An answer that is on its way will have rows: the screen is laid out for them at once.
            detail.display = bool(table.rows) or self._asking
            detail.redraw()

    def _narrowed(self, table: Table) -> Table:
        """Only the rows that have all words of the filter."""
        words = self._words.lower().split()
        if not words:
            return table
        told = ((row, " ".join(cell for cell, _ in row.cells).lower()) for row in table.rows)
        rows = tuple(row for row, text in told if all(word in text for word in words))
        title = self.panel.look.joined([table.title, f"only {clean(self._words, 60)}"])
        return replace(table, title=title, rows=rows, empty="no row has these words" if table.rows else table.empty)

    def action_filter_rows(self) -> None:
        self.panel.ask_line("/", self._words, self._set_words, "words that a row has to have; empty shows all")

    def _set_words(self, text: str) -> None:
        self._words = text.strip()
        self.redraw()

    def leave(self) -> None:
        if self._words:
            self._set_words("")
        else:
            super().leave()

    def on_table_pane_marked(self) -> None:
        detail = self.query_one(Detail)
        detail.top = 0
        detail.redraw()
        self.hint()

    def waiting(self, words: str) -> str:
        """What an empty table says."""
        return self.trouble or ("asking" if self._asking else words)

    def action_open_row(self) -> None:
        """Enter: into the detail, where a row has nothing else to do."""
        self.query_one(Detail).focus()


def _without_log(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, version=0, log=LogView())
