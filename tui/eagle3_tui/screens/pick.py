"""Choosing one side of a comparison: a list to pick from, narrowed by what is typed, or a path of this machine."""

from __future__ import annotations

from functools import partial

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input
from textual.worker import get_current_worker

from eagle3_tui import candidates
from eagle3_tui.bindings import bindings
from eagle3_tui.candidates import Candidate
from eagle3_tui.screens.dialogs import READ, Dialog
from eagle3_tui.text import clean, fit, shorten
from eagle3_tui.widgets.facts import wrapped

NOTE = 20


class PickDialog(Dialog[Candidate]):
    """Answers with what was chosen. ``known`` is what is there without looking; more is looked up meanwhile."""

    BINDINGS = bindings("pick", *READ)
    keys = ("pick", "dialog")
    AUTO_FOCUS = "Input"

    def __init__(self, heading: str, hint: str, known: list[Candidate], kind: str = "", stage: str = "") -> None:
        """``kind`` keeps to one kind, as the other side is chosen already; runs of ``stage`` come first."""
        super().__init__()
        self.heading = heading
        self._hint = hint
        self._kind = kind
        self._stage = stage
        self._known = candidates.ordered(known, stage)
        self._paths: list[Candidate] = []
        self._typed = ""
        self._at = 0
        self._other: Candidate | None = None

    def hide(self, other: Candidate | None) -> None:
        """Leave out the side that is chosen already."""
        self._other = other

    def offer(self, more: list[Candidate]) -> None:
        """Candidates that came in later. A mark that was moved stays where it is."""
        marked = self._marked if self._at else None
        self._known = candidates.ordered([*self._known, *more], self._stage)
        if marked is not None and marked in self._shown:
            self._at = self._shown.index(marked)
        if self.is_attached:
            self.renew()

    @property
    def _shown(self) -> list[Candidate]:
        found = self._paths if candidates.is_path(self._typed) else candidates.matching(self._known, self._typed)
        return [one for one in found if one != self._other and (not self._kind or one.kind == self._kind)]

    @property
    def _marked(self) -> Candidate | None:
        shown = self._shown
        return shown[min(self._at, len(shown) - 1)] if shown else None

    def body(self) -> list[Text]:
        look, shown = self.look, self._shown
        lines = wrapped(look, self._hint, self.room, "dim")
        height = max(3, self.app.size.height - 11 - len(lines))
        at = min(self._at, max(0, len(shown) - 1))
        room_for_notes = min(NOTE, max((len(one.note) for one in shown), default=0))
        first = max(0, min(at - height // 2, len(shown) - height))
        for index, one in enumerate(shown[first : first + height], first):
            here = index == at
            width = self.room - 12 - room_for_notes
            title = self._title(look.remote(clean(one.title, 500)), width)
            note = shorten(look.remote(clean(one.note, 100)), room_for_notes, look.glyph("more"))
            lines.append(
                look.line(
                    (f"{look.glyph('here')} " if here else "  ", "accent bold"),
                    (f"{one.kind:<7}  ", "dim"),
                    (title + " ", "text bold" if here else "text"),
                    (note, "dim"),
                )
            )
        if not shown:
            lines += wrapped(look, "nothing here has that name; a path needs a /", self.room, "warn")
        return [*lines, Text("")]

    def _title(self, title: str, width: int) -> str:
        more = self.look.glyph("more")
        return fit(title, width) if len(title) <= width else fit(more + title[len(title) - width + 1 :], width)

    def more(self) -> ComposeResult:
        yield Input(placeholder="type to narrow, or a path", id="code", select_on_focus=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._typed, self._at = event.value, 0
        if candidates.is_path(self._typed):
            self._paths = [candidates.typed(self._typed)]
            self.run_worker(
                partial(self._list, self._typed), thread=True, group="paths", exclusive=True, exit_on_error=False
            )
        self.renew()

    def _list(self, typed: str) -> None:
        """On a thread: a folder may lie on a disk that takes its time."""
        found = candidates.paths(typed)
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self._listed, typed, found)

    def _listed(self, typed: str, found: list[Candidate]) -> None:
        if typed == self._typed and self.is_attached:
            self._paths = found
            self.renew()

    def on_input_submitted(self) -> None:
        self.action_choose()

    def action_choose(self) -> None:
        if self._marked is not None:
            self.dismiss(self._marked)

    def action_complete(self) -> None:
        """Take over the marked path, or as much as all offered ones agree on, to go on typing behind it."""
        marked = self._marked
        if marked is None or not candidates.is_path(self._typed):
            return
        field = self.query_one(Input)
        field.value = marked.path if self._at else candidates.completed(self._typed, self._shown)
        field.cursor_position = len(field.value)

    def _move(self, step: int) -> None:
        self._at = min(max(0, min(self._at, len(self._shown) - 1) + step), max(0, len(self._shown) - 1))
        self.renew()

    def action_up(self) -> None:
        self._move(-1)

    def action_down(self) -> None:
        self._move(1)

    def action_page_back(self) -> None:
        self._move(-10)

    def action_page_on(self) -> None:
        self._move(10)
