"""The dashboard: pipeline, curves or numbers, gauges, events and the log tail."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import Container

from eagle3_backend.control.commands import FollowLog, Forecast
from eagle3_backend.control.snapshot import Snapshot
from eagle3_backend.states import LinkState, RunState
from eagle3_tui import rules
from eagle3_tui.bindings import bindings
from eagle3_tui.needs import LAST, cost_words, needs
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.widgets.charts import Charts, curves
from eagle3_tui.widgets.details import Ahead, Details, Hint
from eagle3_tui.widgets.events import Events, Told
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.gauges import Gauges, Now, Numbers
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.log import LogTail
from eagle3_tui.widgets.needline import Line, NeedLine
from eagle3_tui.widgets.pipeline import Pipeline, Stages
from eagle3_tui.widgets.small import TooSmall

FORECAST_SECONDS = 300.0
CHART_SECONDS = 1.0
"""Curves are drawn at most this often."""


class Dashboard(PanelScreen):
    """Hands each widget its part of the snapshot; where they stand is said by the style sheet alone."""

    BINDINGS = bindings("run", "attempts")
    AUTO_FOCUS = "Pipeline"

    def __init__(self) -> None:
        super().__init__()
        self._charted = -CHART_SECONDS
        self._log = ""
        self._forecast: dict[str, Any] | None = None
        self._forecast_of: tuple[RunState, ...] = ()
        self._forecast_at = 0.0

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            yield NeedLine(id="needs")
            with Container(id="top"):
                yield Pipeline(classes="panel")
                yield Hint(classes="panel")
                yield Charts()
                yield Now(classes="panel")
                yield Details(classes="panel")
            with Container(id="middle"):
                yield Gauges(classes="panel")
                yield Events(classes="panel")
            yield LogTail(classes="panel")
        yield FooterBar(id="footer")

    @property
    def stage(self) -> str:
        return self.query_one(Pipeline).selected

    @property
    def stage_chosen(self) -> bool:
        return self.query_one(Pipeline).moved

    @property
    def marked_stages(self) -> tuple[str, ...]:
        return self.query_one(Pipeline).marked_in_order

    def start_asked(self) -> None:
        self.query_one(Pipeline).step_out()

    @property
    def context(self) -> str:
        return "log" if isinstance(self.focused, LogTail) else "pipeline"

    def show(self, snapshot: Snapshot) -> None:
        self.set_class(_is_first_run(snapshot), "-first")
        self.query_one(Pipeline).show(Stages.of(snapshot))
        self.query_one(LogTail).show(snapshot.log)
        self.query_one(Gauges).show(snapshot.host)
        self.query_one(Events).show(Told.of(snapshot.events, self.panel.seen_events))
        self.query_one(Details).show(snapshot.stage(self.stage))
        self._show_curves(snapshot)
        self._ask_forecast(snapshot)
        self._show_needs(snapshot)
        super().show(snapshot)

    def _show_needs(self, snapshot: Snapshot) -> None:
        waiting = needs(snapshot, self.panel.monotonic())
        costs = tuple(cost_words(self._forecast, snapshot))
        self.query_one(NeedLine).show(Line(waiting, costs, bool(snapshot.stages)))
        total = (self._forecast or {}).get("total", {})
        self.query_one(Hint).show(Ahead(total.get("seconds"), total.get("bytes"), snapshot.host.machine.disk_free))

    def _ask_forecast(self, snapshot: Snapshot) -> None:
        """Forecast the rest of the campaign when a stage began or ended, and now and then."""
        now = self.panel.monotonic()
        states = tuple(view.state for view in snapshot.stages)
        due = states != self._forecast_of or now - self._forecast_at > FORECAST_SECONDS
        if not due or not states or snapshot.host.link is not LinkState.LIVE:
            return
        self._forecast_of, self._forecast_at = states, now

        def told(answer: dict[str, Any]) -> None:
            self._forecast = answer
            if self.is_attached:
                self._show_needs(self.panel.picture)

        self.panel.inquire(Forecast(LAST), told)

    def failed(self) -> None:
        """The profile could not be opened."""
        pipeline = self.query_one(Pipeline)
        pipeline.empty = "the profile cannot be used: correct it, then press r"
        pipeline.redraw()

    def tick(self) -> None:
        super().tick()
        if self.panel.picture.host.link is not LinkState.LIVE:
            self.query_one(Pipeline).retitle()
        self._show_curves(self.panel.picture)

    def _show_curves(self, snapshot: Snapshot) -> None:
        now = self.panel.monotonic()
        if now - self._charted < CHART_SECONDS:
            return
        if snapshot.version:
            self._charted = now
        view = rules.active(snapshot)
        stage = view.name if view is not None else ""
        self.query_one(Charts).show(curves(snapshot.series, stage))
        self.query_one(Now).show(Numbers(snapshot.host.machine, snapshot.series, stage))

    def on_pipeline_selected(self) -> None:
        self.query_one(Details).show(self.panel.picture.stage(self.stage))
        self.hint()

    def leave(self) -> None:
        """There is nothing further out; q leaves the panel."""

    def choose_stage(self, name: str) -> None:
        """Select a stage as if the operator had moved to it."""
        self.query_one(Pipeline).select(name)

    def action_open_stage(self) -> None:
        if not self.stage:
            return
        from eagle3_tui.screens.stage import StageScreen

        self.app.push_screen(StageScreen(self.stage, self._log))

    def show_log_of(self, attempt: int) -> None:
        self._log = self.stage
        super().show_log_of(attempt)

    def action_stage_log(self) -> None:
        if self.stage:
            self._log = self.stage
            self.panel.ask(FollowLog(self._log))
            self.query_one(LogTail).focus()


def _is_first_run(snapshot: Snapshot) -> bool:
    """The shipped local campaign, and nothing of it has run yet."""
    waiting = (RunState.READY, RunState.BLOCKED)
    untouched = all(view.state in waiting and not view.attempt and not view.fresh for view in snapshot.stages)
    return snapshot.campaign == "local" and bool(snapshot.stages) and untouched
