"""Where a decode step's time goes: the newest decode profile as a table with a bar for each share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from rich.text import Text

from eagle3_backend.control.commands import Command, Results
from eagle3_backend.control.snapshot import Snapshot
from eagle3_tui.bindings import bindings
from eagle3_tui.drawing import bar
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.text import clean, size
from eagle3_tui.tracefigures import Line, lines, names
from eagle3_tui.widgets.facts import pairs_lines, progress_words, state_words, wrapped
from eagle3_tui.widgets.header import age_words
from eagle3_tui.widgets.table import Row, Table

BAR, NARROW_BAR = 24, 18
"""Cells of a bar that is 100 %."""
WIDE = 100
"""Cells from which on the rows say themselves what they mean."""


class TraceScreen(TableScreen):
    BINDINGS = bindings("run")
    CSS_PATH = "../theme/forms.tcss"
    context = "trace"

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._profiles: list[Mapping[str, Any]] = []
        self._bench: Mapping[str, Any] = {}
        self._answered = False
        self._known: tuple[Any, ...] = ()

    @property
    def stage(self) -> str:
        return "trace"

    def question(self) -> Command:
        return Results("trace")

    def take(self, answer: object) -> None:
        self._profiles = cast("dict[str, Any]", answer)["artifacts"]
        self._answered = True
        self.panel.inquire(Results("bench"), self._take_bench, self.panel.refused_by_the_way)

    def _take_bench(self, answer: Mapping[str, Any]) -> None:
        planned = [entry for entry in answer["artifacts"] if entry.get("planned")]
        self._bench = (planned[0].get("summary") or {}) if planned else {}
        self.redraw()

    def show(self, snapshot: Snapshot) -> None:
        """Ask again when a profile or a bench has ended."""
        views = [snapshot.stage(name) for name in ("trace", "bench")]
        known = (*((view.run, view.attempt, view.fresh) if view else () for view in views), bool(snapshot.stages))
        if known != self._known:
            self._known = known
            self.refresh_data()
        super().show(snapshot)

    def on_mount(self) -> None:
        """The first look at the snapshot asks."""

    @property
    def _summary(self) -> Mapping[str, Any]:
        found = self._profiles[0].get("summary") if self._profiles else None
        return found if isinstance(found, Mapping) else {}

    def table(self) -> Table:
        look = self.panel.look
        title = look.joined(["Decode profile", age_words(self.panel.picture.host, self.panel.monotonic())])
        if not self._profiles:
            return Table(title, empty=self._empty(), notes=tuple(self._state()))
        wide = self.app.size.width >= WIDE
        rows = tuple(self._row(line, wide) for line in lines(self._summary, self._bench))
        heads = ("of a decode step", "with drafter", "without", *(("",) if wide else ()), "what it is" if wide else "")
        return Table(title, heads, rows, "", tuple(self._notes()), 12 if wide else NARROW_BAR)

    def _row(self, line: Line, wide: bool) -> Row:
        look = self.panel.look
        full = BAR if wide else NARROW_BAR
        chart = "" if line.share is None else bar(line.share, full, look.glyph("full"), look.glyph("empty"))
        cells = [(line.name, line.role), (line.drafted, line.role), (line.plain, "dim"), (chart, "accent")]
        return Row(line.key, (*cells, *(((line.means, "dim"),) if wide else ())))

    def _empty(self) -> str:
        if self.trouble:
            return self.trouble
        return "no decode profile of this campaign yet; s makes one" if self._answered else "asking the host"

    def _state(self) -> list[Text]:
        """What the stage does now, while it is at work."""
        view = self.panel.picture.stage("trace")
        if view is None or not (view.state.is_active or view.last_state):
            return []
        told = state_words(view, self.panel.look, self.panel.monotonic())
        return [self.panel.look.line(" trace: ", *told, (f"  {progress_words(view)}", "dim")), Text("")]

    def _notes(self) -> list[Text]:
        entry, look = self._profiles[0], self.panel.look
        ended, traces = entry.get("ended"), self._summary.get("traces")
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(ended)) if isinstance(ended, int | float) else ""
        kept = f"traces {size(traces.get('bytes'))}" if isinstance(traces, Mapping) else ""
        which = "" if entry.get("planned") else "of other parameters"
        told = look.joined([clean(entry.get("fingerprint"), 16), when, kept, which])
        return [*self._state(), look.line((f" {look.remote(told)}", "accent")), Text("")]

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        line = next((line for line in lines(self._summary, self._bench) if line.key == key), None)
        if line is None:
            return []
        pairs = [("with drafter", line.drafted), ("without", line.plain)]
        told = names(self._summary, line) or [pair for pair in pairs if pair[1]]
        return [*wrapped(look, line.means, width), *pairs_lines(told, look, width)]
