"""One stage: what it is doing, why it ended, its findings, summary and parameters beside its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container

from eagle3_backend.control.commands import Artifact, Attempts, FollowLog, Specification
from eagle3_backend.control.snapshot import Event, Snapshot, StageView
from eagle3_backend.pipeline.parameters import StageParameters
from eagle3_backend.pipeline.stages import STAGES, Stage
from eagle3_tui.bindings import bindings
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.specfacts import spec_lines
from eagle3_tui.text import clean
from eagle3_tui.widgets.events import event_line
from eagle3_tui.widgets.facts import artifact_lines, attempt_line, pairs_lines, stage_lines
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.log import LogTail
from eagle3_tui.widgets.scroller import Scroller
from eagle3_tui.widgets.small import TooSmall

ATTEMPTS = 12
"""Attempts that are listed, the newest first."""


@dataclass(frozen=True)
class StagePart:
    """What the facts panel draws."""

    view: StageView | None
    events: tuple[Event, ...]
    parameters: Mapping[str, Any]
    attempts: tuple[Mapping[str, Any], ...] = ()
    artifact: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] | None = None


class Facts(Scroller):
    """Everything known of the stage, in sections."""

    BINDINGS = bindings("list", "scroll")

    def title(self, width: int) -> Text:
        part: StagePart | None = self.part
        return Text(clean(part.view.name, 40) if part and part.view else "Stage")

    def all_lines(self, width: int) -> list[Text]:
        part: StagePart | None = self.part
        if part is None or part.view is None:
            return [self.look.line(("not part of this campaign", "dim"))]
        view, look = part.view, self.look
        lines = stage_lines(view, look, width, self.panel.monotonic())
        run = [("run", clean(view.run if view.attempt else "none yet", 120)), ("attempt", str(view.attempt or "-"))]
        declared = STAGES.get(view.name)
        if declared is not None:
            run.append(("reads", ", ".join(declared.reads) or "nothing"))
            run.append(("resumes", _going_on(declared)))
        lines += [Text(""), look.line(("Run", "accent bold")), *pairs_lines(run, look, width)]
        if part.attempts:
            lines += [Text(""), look.line(("Attempts", "accent bold"))]
            lines += [attempt_line(entry, look, width) for entry in part.attempts]
        if part.artifact:
            lines += [Text(""), look.line(("Artifact", "accent bold")), *artifact_lines(part.artifact, look, width)]
        if part.events:
            lines += [Text(""), look.line(("Events", "accent bold"))]
            lines += [event_line(replace(event, source=""), look, width) for event in reversed(part.events[-6:])]
        if part.parameters:
            shared = {entry.name for entry in fields(StageParameters)}
            ordered = sorted(part.parameters.items(), key=lambda entry: entry[0] in shared)
            pairs = [(name, clean(value, 160)) for name, value in ordered]
            lines += [Text(""), look.line(("Parameters", "accent bold")), *pairs_lines(pairs, look, width)]
        if part.spec:
            lines += [Text(""), look.line(("Spec", "accent bold"), (f"  attempt {view.attempt}", "dim"))]
            lines += spec_lines(part.spec, look, width)
        return lines


class StageScreen(PanelScreen):
    BINDINGS = bindings("run", "attempts", "stage")
    AUTO_FOCUS = "Facts"

    def __init__(self, stage: str, log: str) -> None:
        """``log`` is the stage whose log the dashboard shows by choice, empty when it follows the work."""
        super().__init__()
        self._stage = stage
        self._log = log
        self._parameters: Mapping[str, Any] = {}
        self._attempts: tuple[Mapping[str, Any], ...] = ()
        self._artifact: Mapping[str, Any] | None = None
        self._spec: Mapping[str, Any] | None = None
        self._known = ("", 0, False)
        self._attempt = 0
        """The attempt whose log is shown by choice; 0: the newest."""

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            yield Facts(classes="panel")
            yield LogTail(classes="panel")
        yield FooterBar(id="footer")

    def on_mount(self) -> None:
        self._parameters = self.panel.source.parameters(self._stage)
        self.panel.ask(FollowLog(self._stage))

    @property
    def stage(self) -> str:
        return self._stage

    @property
    def context(self) -> str:
        return "stage log" if isinstance(self.focused, LogTail) else "stage"

    def show(self, snapshot: Snapshot) -> None:
        events = tuple(event for event in snapshot.events if event.source == self._stage)
        view = snapshot.stage(self._stage)
        self._ask_again(view)
        part = StagePart(view, events, self._parameters, self._attempts, self._artifact, self._spec)
        self.query_one(Facts).show(part)
        if snapshot.log.stage == self._stage and self._attempt in (0, snapshot.log.attempt):
            self.query_one(LogTail).show(snapshot.log)
        super().show(snapshot)

    def _ask_again(self, view: StageView | None) -> None:
        """Attempts, artifact and spec, when an attempt began or ended since they were told."""
        known = (view.state.value, view.attempt, view.fresh) if view is not None else ("", 0, False)
        if known == self._known:
            return
        self._known = known

        def attempts(answer: Mapping[str, Any]) -> None:
            told = [entry for entry in answer["attempts"] if entry["stage"] == self._stage]
            self._attempts = tuple(told[:ATTEMPTS])
            self.show_again()

        def artifact(answer: Mapping[str, Any] | None) -> None:
            self._artifact = answer
            self.show_again()

        def spec(answer: Mapping[str, Any] | None) -> None:
            self._spec = answer
            self.show_again()

        self.panel.inquire(Attempts(), attempts)
        if view is not None and view.attempt:
            # Where it cannot be read, all else of the stage still can.
            self.panel.inquire(Specification(view.run, view.attempt), spec, lambda problem: spec(None))
        self.panel.inquire(Artifact(self._stage), artifact)

    def action_delete(self) -> None:
        if not self._refused("delete"):
            from eagle3_tui.screens.delete import choose_artifact

            choose_artifact(self.panel, self._stage, self._forget)

    def _forget(self) -> None:
        """Ask again what there is."""
        self._known = ("", -1, False)
        self.show_again()

    def show_log_of(self, attempt: int) -> None:
        view = self.panel.picture.stage(self._stage)
        self._attempt = 0 if view is None or attempt == view.attempt else attempt
        super().show_log_of(attempt)

    def leave(self) -> None:
        self.panel.ask(FollowLog(self._log))
        super().leave()


def _going_on(stage: Stage) -> str:
    """What the next attempt of an unfinished one begins with."""
    if not stage.resumes:
        return "starts over"
    return "yes, from its last checkpoint" if stage.makes == "checkpoint" else "yes, from what it has kept"
