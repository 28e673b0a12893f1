"""What the screens over a stage's results share: the newest ones, those of another stage beside them, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from rich.text import Text

from eagle3_backend.control.commands import Command, Results
from eagle3_backend.control.snapshot import Snapshot
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.widgets.facts import progress_words, state_words


class StageResultsScreen(TableScreen):
    """Asks for the results of ``of`` and of ``beside``, and again when one of these stages has ended."""

    CSS_PATH = "../theme/forms.tcss"
    of: ClassVar[str]
    beside: ClassVar[str]
    nothing: ClassVar[str]
    """What is said where there is no result yet."""

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self.results: list[Mapping[str, Any]] = []
        """Artifacts of ``of``, the newest first."""
        self.others: list[Mapping[str, Any]] = []
        """Artifacts of ``beside``."""
        self._answered = False
        self._known: tuple[Any, ...] = ()

    @property
    def stage(self) -> str:
        return self.of

    def question(self) -> Command:
        return Results(self.of)

    def take(self, answer: object) -> None:
        self.results = cast("dict[str, Any]", answer)["artifacts"]
        self._answered = True
        self.panel.inquire(Results(self.beside), self._take_others, self.panel.refused_by_the_way)

    def _take_others(self, answer: Mapping[str, Any]) -> None:
        self.others = answer["artifacts"]
        self.redraw()

    def show(self, snapshot: Snapshot) -> None:
        """Ask again when a result may have come."""
        views = [snapshot.stage(name) for name in (self.of, self.beside)]
        known = (*((view.run, view.attempt, view.fresh) if view else () for view in views), bool(snapshot.stages))
        if known != self._known:
            self._known = known
            self.refresh_data()
        super().show(snapshot)

    def on_mount(self) -> None:
        """The first look at the snapshot asks."""

    def empty(self) -> str:
        """Why there is no row."""
        return self.trouble or (self.nothing if self._answered else "asking the host")

    def state(self) -> list[Text]:
        """What the stage does now, while it is at work."""
        view, look = self.panel.picture.stage(self.of), self.panel.look
        if view is None or not (view.state.is_active or view.last_state):
            return []
        told = state_words(view, look, self.panel.monotonic())
        return [look.line(f" {self.of}: ", *told, (f"  {progress_words(view)}", "dim")), Text("")]
