"""What benches measured, this campaign's and those of files: every figure with what it means, two benches side by side,
the diagnosis."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rich.text import Text

from eagle3_backend.findings import FindingError, Severity
from eagle3_tui.benchfigures import Bench, Figure, engine_of, figures, not_comparable
from eagle3_tui.bindings import bindings
from eagle3_tui.chartdata import svg_of
from eagle3_tui.loadtable import HEADS, MEANS, LoadRow, as_markdown, bars, beside_none, curves, load_rows, verdicts
from eagle3_tui.screens.stageresults import StageResultsScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import pairs_lines, wrapped
from eagle3_tui.widgets.header import age_words
from eagle3_tui.widgets.table import Row, Table, TablePane
from eagle3_tui.widgets.zoomed import ROLES

NARROW = (0, 1, 2, 3)
"""Columns of the speeds that a narrow terminal shows; the detail below has the others."""


class ResultsScreen(StageResultsScreen):
    """The newest bench, and another one beside it where there is one."""

    BINDINGS = bindings("results", "run")
    context = "results"
    of, beside = "bench", "diagnose"
    nothing = "no bench of this campaign is done yet; s runs it, f opens one from a file"

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._other = 1
        self._opened = ""
        self._by_load = False

    def _all(self) -> list[Bench]:
        """Those of the campaign, the newest first, then those of files."""
        return [*(_bench(entry, self.others) for entry in self.results), *self.panel.bench_files.values()]

    def _chosen(self) -> list[Bench]:
        """The first of all, and the one beside it."""
        benches = self._all()
        return [benches[0], benches[self._place(len(benches))]] if len(benches) > 1 else benches

    def _place(self, known: int) -> int:
        """Where the second one stands among all; that of a file keeps its place when another of the campaign comes."""
        files = list(self.panel.bench_files)
        place = len(self.results) + files.index(self._opened) if self._opened in files else self._other
        return max(1, min(place, known - 1))

    def table(self) -> Table:
        look = self.panel.look
        benches, known = self._chosen(), len(self._all())
        facts = ["Bench results", f"{known} benches" if known > 1 else ""]
        title = look.joined([*facts, age_words(self.panel.picture.host, self.panel.monotonic())])
        if not benches:
            return Table(title, empty=self.empty(), notes=tuple(self.state()))
        if self._by_load:
            return self._load_table(title, benches)
        # Where it is narrow, the detail below says what the marked figure is.
        wide = self.app.size.width >= (120 if len(benches) > 1 else 100)
        rows = tuple(_row(figure, look.glyph("warn"), wide) for figure in figures(benches))
        letters = ("A", "B") if len(benches) > 1 else ("measured",)
        heads = (" ", "figure", *letters, *(("what it is",) if wide else ()))
        return Table(title, heads, rows, "", (*self._notes(benches), Text("")), 12 if wide else 21)

    def _load_table(self, title: str, benches: list[Bench]) -> Table:
        """Speeds by load: who drafts, how deep, and how fast; of two benches those at one load beside each other."""
        look, width = self.panel.look, self.app.size.width
        notes, told = self._notes(benches), []
        for letter, bench in zip(("A: ", "B: ") if len(benches) > 1 else ("",), benches, strict=True):
            for words in verdicts(bench.summary):
                told += wrapped(look, letter + words, max(20, width - 6), "dim", " ")
        found = list(_load_rows(benches))
        rows = [row for _, row in found]
        by_rate = not all(beside_none([row for whose, row in found if whose == letter]) for letter, _ in found)
        drawn = bars(rows, look.glyph("full"), look.glyph("empty"), by_rate=by_rate)
        columns = range(len(HEADS)) if width >= 100 else NARROW
        letters = [((letter, row.role),) if len(benches) > 1 else () for letter, row in found]
        heads = (*(HEADS[column] for column in columns), "tok/s" if by_rate else "beside none")
        made = tuple(
            Row(row.key, (*letter, *((row.cells[column], row.role) for column in columns), (line, row.role)))
            for letter, row, line in zip(letters, rows, drawn, strict=True)
        )
        empty = "" if made else "this bench timed nothing"
        # The table says more than the verdicts: where there is little room, those give way.
        room = max(1, self.query_one(TablePane).size.height - len(made) - len(notes) - 2)
        heads = (" ", *heads) if len(benches) > 1 else heads
        return Table(title, heads, made, empty, (*notes, *told[:room], Text("")), 8)

    def _notes(self, benches: list[Bench]) -> list[Text]:
        look = self.panel.look
        notes = self.state()
        for letter, bench in zip(("A", "B"), benches, strict=False):
            name = f"{letter}  " if len(benches) > 1 else ""
            notes.append(look.line((f" {name}{look.remote(bench.title)}", "accent")))
            if wrong := _wrong(bench):
                notes.append(look.line((f" {look.glyph('warn')} {name}{look.remote(wrong)}", "warn")))
        if differing := not_comparable(benches):
            words = f" {look.glyph('warn')} not measured alike: {', '.join(differing)} differ"
            notes.append(look.line((look.remote(words), "warn")))
        return notes

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        benches = self._chosen()
        if self._by_load:
            return self._load_detail(benches, key, width)
        figure = next((figure for figure in figures(benches) if figure.key == key), None)
        if figure is None:
            return []
        letters = ("A", "B") if len(benches) > 1 else (figure.name.strip(),)
        pairs = list(zip(letters, figure.values, strict=False))
        return [*wrapped(look, figure.means, width), *pairs_lines(pairs, look, width)]

    def _load_detail(self, benches: list[Bench], key: str, width: int) -> list[Text]:
        look = self.panel.look
        letter, row = next((found for found in _load_rows(benches) if found[1].key == key), ("", None))
        if row is None:
            return []
        bench = benches["AB".index(letter)]
        whose = [("bench", f"{letter}  {bench.title}")] if len(benches) > 1 else []
        pairs = [*whose, ("engine", engine_of(bench.summary)), *zip(HEADS, row.cells, strict=True), *row.more]
        said = [f"{name}: {MEANS[name]}." for name in HEADS]
        said += verdicts(bench.summary)
        return [
            *pairs_lines(pairs, look, width),
            Text(""),
            *(line for one in said for line in wrapped(look, one, width)),
        ]

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
        known = len(self._all())
        if known < 2:
            self.panel.notice("there is no other bench")
            return
        self._other = self._place(known) % (known - 1) + 1
        self._opened = dict(enumerate(self.panel.bench_files, len(self.results))).get(self._other, "")
        self.redraw()

    def action_open_bench(self) -> None:
        self.panel.ask_line("file ", "", self.open_bench, "what eagle3-tui bench --endpoint URL --json has written")

    def open_bench(self, path: str) -> None:
        """Put the bench of a file beside the first one."""
        if path.strip():
            self.run_worker(self._read(path.strip()), group="file", exclusive=True)

    async def _read(self, path: str) -> None:
        from eagle3_tui.benchfile import read
        from eagle3_tui.screens.dialogs import MessageDialog

        try:
            bench = await asyncio.to_thread(read, path)
        except FindingError as problem:
            self.app.push_screen(MessageDialog("Cannot open", problem.findings))
            return
        self.panel.bench_files[path] = bench
        self._opened = path
        self.redraw()


def _load_rows(benches: list[Bench]) -> Iterator[tuple[str, LoadRow]]:
    """The rows of each bench with its letter, by load where there are two."""
    found = [
        (letter, replace(row, key=f"{letter} {row.key}"))
        for letter, bench in zip("AB", benches, strict=False)
        for row in load_rows(bench.summary)
    ]
    yield from sorted(found, key=lambda entry: entry[1].load or 0.0) if len(benches) > 1 else found


def _wrong(bench: Bench) -> str:
    """What was wrong with the measurement of a running server, by codes."""
    found = bench.summary.get("findings")
    entries = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    codes = [clean(one.get("code"), 60) for one in entries if one.get("severity") != Severity.INFO.value]
    return ", ".join(dict.fromkeys(codes[:8]))


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
