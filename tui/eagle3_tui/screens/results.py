"""What benches of this campaign measured: every figure with what it means, two benches side by side, the diagnosis."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from eagle3_tui.benchfigures import Bench, Figure, figures, not_comparable
from eagle3_tui.bindings import bindings
from eagle3_tui.chartdata import svg_of
from eagle3_tui.loadtable import HEADS, MEANS, as_markdown, bars, curves, load_rows, verdicts
from eagle3_tui.screens.stageresults import StageResultsScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import pairs_lines, wrapped
from eagle3_tui.widgets.header import age_words
from eagle3_tui.widgets.table import Row, Table
from eagle3_tui.widgets.zoomed import ROLES

NARROW = (0, 1, 2, 3)
"""Columns of the speeds that a narrow terminal shows; the detail below has the others."""


class ResultsScreen(StageResultsScreen):
    """The newest bench, and another one beside it where there is one."""

    BINDINGS = bindings("results", "run")
    context = "results"
    of, beside = "bench", "diagnose"
    nothing = "no bench of this campaign is done yet; s runs it"

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._other = 1
        self._by_load = False

    def _chosen(self) -> list[Bench]:
        """The newest one, and the one beside it."""
        if not self.results:
            return []
        places = [0, *([self._other] if len(self.results) > 1 else [])]
        return [_bench(self.results[place], self.others) for place in places]

    def table(self) -> Table:
        look = self.panel.look
        benches = self._chosen()
        facts = ["Bench results", f"{len(self.results)} benches" if len(self.results) > 1 else ""]
        title = look.joined([*facts, age_words(self.panel.picture.host, self.panel.monotonic())])
        if not benches:
            return Table(title, empty=self.empty(), notes=tuple(self.state()))
        if self._by_load:
            return self._load_table(title, benches[0])
        # Where it is narrow, the detail below says what the marked figure is.
        wide = self.app.size.width >= (120 if len(benches) > 1 else 100)
        rows = tuple(_row(figure, look.glyph("warn"), wide) for figure in figures(benches))
        letters = ("A", "B") if len(benches) > 1 else ("measured",)
        heads = (" ", "figure", *letters, *(("what it is",) if wide else ()))
        return Table(title, heads, rows, "", tuple(self._notes(benches)), 12 if wide else 21)

    def _load_table(self, title: str, bench: Bench) -> Table:
        """Speeds of the newest bench by load: who drafts, how deep, and how fast beside the target alone."""
        look, width = self.panel.look, self.app.size.width
        notes = [*self.state(), look.line((f" {look.remote(bench.title)}", "accent"))]
        for words in verdicts(bench.summary):
            notes += wrapped(look, words, max(20, width - 6), "dim", " ")
        rows = load_rows(bench.summary)
        drawn = bars(rows, look.glyph("full"), look.glyph("empty"))
        columns = range(len(HEADS)) if width >= 100 else NARROW
        heads = (*(HEADS[column] for column in columns), "beside none")
        made = tuple(
            Row(row.key, (*((row.cells[column], row.role) for column in columns), (line, row.role)))
            for row, line in zip(rows, drawn, strict=True)
        )
        empty = "" if made else "this bench timed nothing"
        # The table says more than the verdicts: where there is little room, those give way.
        room = max(2, self.app.size.height // 2 - len(made) - 6)
        return Table(title, heads, made, empty, (*notes[:room], Text("")), 8)

    def _notes(self, benches: list[Bench]) -> list[Text]:
        look = self.panel.look
        notes = self.state()
        for letter, bench in zip(("A", "B"), benches, strict=False):
            name = f"{letter}  " if len(benches) > 1 else ""
            notes.append(look.line((f" {name}{look.remote(bench.title)}", "accent")))
        if differing := not_comparable(benches):
            words = f" {look.glyph('warn')} not measured alike: {', '.join(differing)} differ"
            notes.append(look.line((look.remote(words), "warn")))
        return [*notes, Text("")]

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        benches = self._chosen()
        if self._by_load:
            row = next((row for bench in benches[:1] for row in load_rows(bench.summary) if row.key == key), None)
            if row is None:
                return []
            pairs = [*zip(HEADS, row.cells, strict=True), *row.more]
            said = [f"{name}: {MEANS[name]}." for name in HEADS]
            said += verdicts(benches[0].summary)
            return [
                *pairs_lines(pairs, look, width),
                Text(""),
                *(line for one in said for line in wrapped(look, one, width)),
            ]
        figure = next((figure for figure in figures(benches) if figure.key == key), None)
        if figure is None:
            return []
        letters = ("A", "B") if len(benches) > 1 else (figure.name.strip(),)
        pairs = list(zip(letters, figure.values, strict=False))
        return [*wrapped(look, figure.means, width), *pairs_lines(pairs, look, width)]

    def action_by_load(self) -> None:
        self._by_load = not self._by_load
        self.redraw()

    def more_files(self) -> dict[str, str]:
        """The newest bench as a report and as data."""
        benches = self._chosen()
        if not benches:
            return {}
        summary, palette = benches[0].summary, self.panel.look.palette
        own = {name: getattr(palette, name) for name in ("background", "text", "dim", "line")}
        colours = [getattr(palette, role) for role in ROLES]
        return {
            "bench.md": as_markdown(summary, f"Bench {benches[0].title}"),
            "bench.json": json.dumps(summary, indent=1) + "\n",
            "bench.svg": svg_of("speed-up beside none", curves(summary), "requests in flight", colours, own, False),
        }

    def action_other_bench(self) -> None:
        if len(self.results) < 2:
            self.panel.notice("there is no other bench")
            return
        self._other = self._other % (len(self.results) - 1) + 1
        self.redraw()


def _row(figure: Figure, mark: str, wide: bool) -> Row:
    values = tuple((value, figure.role) for value in figure.values)
    marked = (mark, "warn") if figure.differs else (" ", "dim")
    return Row(figure.key, (marked, (figure.name, "text"), *values, *(((figure.means, "dim"),) if wide else ())))


def _bench(entry: Mapping[str, Any], diagnoses: list[Mapping[str, Any]]) -> Bench:
    ended = entry.get("ended")
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(ended)) if isinstance(ended, int | float) else "no time told"
    which = "of the profile as it is" if entry.get("planned") else "of other parameters"
    found = next((one for one in diagnoses if (one.get("inputs") or {}).get("bench") == entry["fingerprint"]), None)
    summary = entry.get("summary")
    return Bench(
        f"{clean(entry['fingerprint'], 16)}, {when}, {which}",
        summary if isinstance(summary, Mapping) else {},
        (found.get("summary") or {}) if found is not None else None,
    )
