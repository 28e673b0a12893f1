"""Where a decode step's time goes: the newest decode profile as a table with a bar for each share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from eagle3_tui.bindings import bindings
from eagle3_tui.drawing import bar
from eagle3_tui.screens.stageresults import StageResultsScreen
from eagle3_tui.text import clean, size
from eagle3_tui.tracefigures import Line, lines, names
from eagle3_tui.widgets.facts import pairs_lines, wrapped
from eagle3_tui.widgets.header import age_words
from eagle3_tui.widgets.table import Row, Table

BAR, NARROW_BAR = 24, 18
"""Cells of a bar that is 100 %."""
WIDE = 100
"""Cells from which on the rows say themselves what they mean."""


class TraceScreen(StageResultsScreen):
    BINDINGS = bindings("run")
    context = "trace"
    of, beside = "trace", "bench"
    nothing = "no decode profile of this campaign yet; s makes one"

    @property
    def _summary(self) -> Mapping[str, Any]:
        found = self.results[0].get("summary") if self.results else None
        return found if isinstance(found, Mapping) else {}

    @property
    def _bench(self) -> Mapping[str, Any]:
        """The summary of the bench that the campaign plans now."""
        planned = [entry for entry in self.others if entry.get("planned")]
        return (planned[0].get("summary") or {}) if planned else {}

    def table(self) -> Table:
        look = self.panel.look
        title = look.joined(["Decode profile", age_words(self.panel.picture.host, self.panel.monotonic())])
        if not self.results:
            return Table(title, empty=self.empty(), notes=tuple(self.state()))
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

    def _notes(self) -> list[Text]:
        entry, look = self.results[0], self.panel.look
        ended, traces = entry.get("ended"), self._summary.get("traces")
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(ended)) if isinstance(ended, int | float) else ""
        kept = f"traces {size(traces.get('bytes'))}" if isinstance(traces, Mapping) else ""
        which = "" if entry.get("planned") else "of other parameters"
        told = look.joined([clean(entry.get("fingerprint"), 16), when, kept, which])
        return [*self.state(), look.line((f" {look.remote(told)}", "accent")), Text("")]

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        line = next((line for line in lines(self._summary, self._bench) if line.key == key), None)
        if line is None:
            return []
        pairs = [("with drafter", line.drafted), ("without", line.plain)]
        told = names(self._summary, line) or [pair for pair in pairs if pair[1]]
        return [*wrapped(look, line.means, width), *pairs_lines(told, look, width)]
