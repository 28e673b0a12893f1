"""One chart on the whole screen: axes, cursor, zoom, logarithm, smoothing, other runs beside it, and files of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from textual.app import ComposeResult
from textual.containers import Container

from eagle3_backend.control.commands import Attempts, Metrics
from eagle3_backend.control.snapshot import Snapshot
from eagle3_backend.pipeline.stages import STAGES
from eagle3_tui.bindings import bindings
from eagle3_tui.chartdata import SMOOTHINGS, Drawn, Family, by_time, csv_of, families, smoothed, svg_of, within
from eagle3_tui.drawing import Point
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.screens.choose import Choice, ChooseDialog
from eagle3_tui.widgets.charts import ordered_names
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.logpane import words_of
from eagle3_tui.widgets.small import TooSmall
from eagle3_tui.widgets.zoomed import ROLES, Legend, View, Zoomed

ZOOM = 2.0
CURSOR_STEPS = 60
"""The cursor crosses the chart in this many steps."""
LEGEND_ROWS = 8

Run = tuple[str, int]


class ChartScreen(PanelScreen):
    """Keys change the view; what is drawn is made of the snapshot's series and of pinned runs."""

    BINDINGS = bindings("chart", "list", "sideways")
    AUTO_FOCUS = "Zoomed"
    context = "chart"

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = stage
        self._chart = ""
        self._span: tuple[float, float] | None = None
        self._cursor: float | None = None
        self._log = False
        self._smoothing = 0
        self._timed = False
        self._pinned: dict[Run, Mapping[str, Any]] = {}
        self._own: Mapping[str, Any] = {}
        self._view = View()

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            yield Zoomed()
            yield Legend()
        yield FooterBar(id="footer")

    @property
    def stage(self) -> str:
        return self._stage

    def show(self, snapshot: Snapshot) -> None:
        self._redraw()
        super().show(snapshot)

    # What is drawn

    def _families(self) -> list[Family]:
        picture = self.panel.picture
        return families(ordered_names(picture.series, self._stage)) + families(list(picture.gauges))

    def _family(self) -> Family | None:
        found = self._families()
        return next((one for one in found if one.title == self._chart), found[0] if found else None)

    def _is_gauge(self, family: Family) -> bool:
        return family.members[0] in self.panel.picture.gauges

    def _curves(self, family: Family) -> tuple[Drawn, ...]:
        picture = self.panel.picture
        if self._is_gauge(family):
            return tuple(Drawn(name, picture.gauges[name]) for name in family.members)
        curves = []
        for name in family.members:
            points = picture.series.get(name, ())
            if self._timed:
                points = by_time(*_stored(self._own, name))
            curves.append(Drawn(name, points))
        for (run, attempt), answer in self._pinned.items():
            for name in family.members:
                points, clock = _stored(answer, name)
                if points:
                    label = f"{run} attempt {attempt}" + (f" {name}" if len(family.members) > 1 else "")
                    curves.append(Drawn(label, by_time(points, clock) if self._timed else points))
        return tuple(curves)

    def _redraw(self) -> None:
        family = self._family()
        if family is None:
            self.query_one(Zoomed).show(View("Charts"))
            return
        self._chart = family.title
        curves = tuple(
            Drawn(one.label, smoothed(one.points, SMOOTHINGS[self._smoothing])) for one in self._curves(family)
        )
        low, high = self._bounds(curves)
        timed = self._timed or self._is_gauge(family)
        shown = tuple(Drawn(one.label, within(one.points, low, high)) for one in curves)
        title = self._title(family, low, high, timed)
        self._view = View(title, shown, low, high, self._cursor, self._log, "time" if timed else "step")
        self.query_one(Zoomed).show(self._view)
        legend = self.query_one(Legend)
        legend.styles.height = min(LEGEND_ROWS, max(1, len(shown)))
        legend.show(self._view)

    def _bounds(self, curves: tuple[Drawn, ...]) -> tuple[float, float]:
        if self._span is not None:
            return self._span
        known = [one.points for one in curves if one.points]
        return min((one[0][0] for one in known), default=0.0), max((one[-1][0] for one in known), default=1.0)

    def _title(self, family: Family, low: float, high: float, timed: bool) -> str:
        look = self.panel.look
        place = [one.title for one in self._families()].index(family.title) + 1
        facts = [family.title, f"{place} of {len(self._families())}"]
        facts.append("by time" if timed else "by step")
        facts.append("logarithmic" if self._log else "")
        facts.append(f"smoothed {SMOOTHINGS[self._smoothing]}" if self._smoothing else "")
        if self._span is not None:
            words = View(x_name="time" if timed else "step").x_words
            facts.append(f"{words(low)} to {words(high)}, 0 shows all")
        return look.joined(facts)

    # Keys

    def zoom(self) -> None:
        """The key that opened the chart closes it."""
        self.leave()

    def action_up(self) -> None:
        self._other(-1)

    def action_down(self) -> None:
        self._other(1)

    def action_first(self) -> None:
        self._other(-len(self._families()))

    def action_last(self) -> None:
        self._other(len(self._families()))

    def _other(self, step: int) -> None:
        titles = [one.title for one in self._families()]
        if titles:
            at = titles.index(self._chart) if self._chart in titles else 0
            self._chart = titles[min(len(titles) - 1, max(0, at + step))]
            self._span = self._cursor = None
            self._redraw()

    def _zoom(self, factor: float) -> None:
        low, high = self._view.low, self._view.high
        middle = self._cursor if self._cursor is not None else (low + high) / 2
        half = (high - low) / factor / 2
        self._span = (middle - half, middle + half)
        self._redraw()

    def action_zoom_in(self) -> None:
        self._zoom(ZOOM)

    def action_zoom_out(self) -> None:
        self._zoom(1 / ZOOM)

    def action_zoom_reset(self) -> None:
        self._span = None
        self._redraw()

    def _pan(self, share: float) -> None:
        low, high = self._view.low, self._view.high
        move = (high - low) * share
        self._span = (low + move, high + move)
        self._redraw()

    def action_left(self) -> None:
        self._pan(-0.25)

    def action_right(self) -> None:
        self._pan(0.25)

    def _move_cursor(self, step: int) -> None:
        low, high = self._view.low, self._view.high
        now = self._cursor if self._cursor is not None else high
        self._cursor = min(high, max(low, now + step * (high - low) / CURSOR_STEPS))
        self._redraw()

    def action_cursor_left(self) -> None:
        self._move_cursor(-1)

    def action_cursor_right(self) -> None:
        self._move_cursor(1)

    def action_logarithm(self) -> None:
        self._log = not self._log
        self._redraw()

    def action_smoothing(self) -> None:
        self._smoothing = (self._smoothing + 1) % len(SMOOTHINGS)
        self._redraw()

    def action_by_time(self) -> None:
        self._span = self._cursor = None
        if self._timed:
            self._timed = False
            self._redraw()
            return

        def come(answer: Mapping[str, Any]) -> None:
            self._own, self._timed = answer, True
            self._redraw()

        stage = self._stage_of(self._family())
        self.panel.inquire(Metrics(stage), come, lambda problem: self.panel.notice(words_of(problem), "warn"))

    def _stage_of(self, family: Family | None) -> str:
        """The stage that measures this family."""
        name = family.members[0] if family else ""
        prefix = name.partition("/")[0]
        if prefix in STAGES:
            return prefix
        views = self.panel.picture.stages
        return next((view.name for view in views if name in view.metrics), "train" if prefix == "eval" else self._stage)

    def action_pin(self) -> None:
        """Choose a run to draw beside this one; a pinned one is let go."""
        family = self._family()
        if family is None or self._is_gauge(family):
            self.panel.notice("gauges belong to the host: there is no run to compare", "warn")
            return
        stage = self._stage_of(family)

        def offered(answer: Mapping[str, Any]) -> None:
            runs = [entry for entry in answer["attempts"] if entry["stage"] == stage]
            choices = [
                Choice(
                    f"{entry['run']}\n{entry['attempt']}",
                    f"{entry['run']} attempt {entry['attempt']}",
                    str(entry.get("state") or ""),
                    (entry["run"], entry["attempt"]) in self._pinned,
                )
                for entry in runs
            ]
            dialog = ChooseDialog(f"Compare {stage} with", choices, f"{stage} has no run to compare with")
            self.app.push_screen(dialog, self._pin)

        self.panel.inquire(Attempts(), offered, lambda problem: self.panel.notice(words_of(problem), "warn"))

    def _pin(self, value: str | None) -> None:
        if value is None:
            return
        name, _, number = value.partition("\n")
        run = (name, int(number))
        if self._pinned.pop(run, None) is not None:
            self._redraw()
            return

        def come(answer: Mapping[str, Any]) -> None:
            if not answer["series"]:
                self.panel.notice(f"nothing of {name} is stored on this laptop", "warn")
                return
            self._pinned[run] = answer
            self._redraw()

        command = Metrics(self._stage_of(self._family()), run[1], columns=0, run=name)
        self.panel.inquire(command, come, lambda problem: self.panel.notice(words_of(problem), "warn"))

    def save_files(self) -> dict[str, str]:
        """The chart as files: name and content."""
        view, palette = self._view, self.panel.look.palette
        colours = [getattr(palette, role) for role in ROLES]
        own = {name: getattr(palette, name) for name in ("background", "text", "dim", "line")}
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", self._chart).strip("-") or "chart"
        return {
            f"{name}.svg": svg_of(view.title, view.curves, view.x_name, colours, own, view.log),
            f"{name}.csv": csv_of(view.curves, view.x_name),
        }

    def text_to_copy(self) -> str:
        """The chart's points as CSV."""
        return csv_of(self._view.curves, self._view.x_name)


def _stored(answer: Mapping[str, Any], name: str) -> tuple[tuple[Point, ...], list[Point]]:
    """Points and clock of one series in an answer to `Metrics`."""
    entries = answer.get("series", {}).get(name, ())
    points = tuple((float(x), math.nan if y is None else float(y)) for x, y in entries)
    return points, [(float(step), float(at)) for step, at in answer.get("clock", ())]
