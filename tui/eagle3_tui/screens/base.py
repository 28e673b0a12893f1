"""What the dashboard and the stage screen share: header, footer, and the acts on a stage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from eagle3_backend.control.commands import Resume, Start, Stop
from eagle3_backend.control.snapshot import Snapshot
from eagle3_tui.rules import RULES
from eagle3_tui.screens.painting import PaintedOnce
from eagle3_tui.widgets.footer import FooterBar, Hints
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.logpane import LogPane
from eagle3_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from eagle3_tui.app import Panel


class PanelScreen(PaintedOnce, Screen[None]):
    """A full screen with header and footer; subclasses say which stage is selected and what has the focus."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (180, "-ultra")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-short"), (22, "-medium"), (30, "-high"), (36, "-tall")]  # noqa: RUF012

    shown = -1
    """Version of the snapshot that was drawn last, and since when it and the ages stand there (monotonic seconds)."""
    shown_at = -math.inf
    ticked_at = -math.inf
    _shows_again = _resumed = False

    @property
    def panel(self) -> Panel:
        return cast("Panel", self.app)

    @property
    def stage(self) -> str:
        """The stage that keys act on."""
        raise NotImplementedError

    @property
    def stage_chosen(self) -> bool:
        """True when the operator picked the stage, so that a start means this one."""
        return True

    @property
    def marked_stages(self) -> tuple[str, ...]:
        """The stages that one start runs, in order; empty: the selected one."""
        return ()

    @property
    def unsaved(self) -> str:
        """What would be lost by leaving, in one sentence."""
        return ""

    @property
    def context(self) -> str:
        """The context of `keymap.CONTEXTS` that the footer shows."""
        raise NotImplementedError

    def show(self, snapshot: Snapshot) -> None:
        self.shown, self.shown_at = snapshot.version, self.panel.monotonic()
        self.query_one(HeaderBar).show(snapshot)
        self.hint()

    def show_news(self, snapshot: Snapshot) -> None:
        """Show a newer snapshot; screens that need less of it than all leave the rest out."""
        self.show(snapshot)

    def show_again(self) -> None:
        """Show what an answer brought, once for all answers that are there already."""
        if not self._shows_again:
            self._shows_again = True
            self.call_later(self._show_again)

    def _show_again(self) -> None:
        self._shows_again = False
        if self.is_attached and self.is_composed:
            self.show(self.panel.picture)

    def tick(self) -> None:
        self.query_one(HeaderBar).tick()

    def hint(self) -> None:
        """Bring the footer up to date."""
        panel = self.panel
        off = frozenset(name for name, rule in RULES.items() if panel.readonly or rule(panel.picture, self.stage))
        self.query_one(FooterBar).show(Hints(self.context, off, *panel.message))

    def on_descendant_focus(self) -> None:
        self.hint()

    def on_compose(self) -> None:
        self._fit(self.app.size)

    def on_resize(self, event: Resize) -> None:
        self._fit(event.size)
        self.call_after_refresh(self._keep_focus)

    def _fit(self, size: Size) -> None:
        """Take the classes of this size before all is laid out for it: Textual does it behind, and lays out again."""
        scales = ((size.width, self.HORIZONTAL_BREAKPOINTS), (size.height, self.VERTICAL_BREAKPOINTS))
        fitting = {max((least, name) for least, name in scale if length >= least) for length, scale in scales}
        self.update_classes({entry[1]: entry in fitting for _, scale in scales for entry in scale}, animate=False)

    def _keep_focus(self) -> None:
        """A panel that was hidden for a while lost the focus: give it to the first one again."""
        if self.focused is None and self.is_current:
            self.focus_next(".panel")
            self.hint()

    @property
    def is_composed(self) -> bool:
        """True once the widgets are there; a resume or a timer may come before."""
        return bool(self.query(FooterBar))

    def on_mount(self) -> None:
        self.show(self.panel.picture)

    def on_screen_resume(self) -> None:
        # The first time it was mounted just before.
        just_shown = not self._resumed and self.shown == self.panel.picture.version
        self._resumed = True
        if self.is_composed and not just_shown:
            self.show(self.panel.picture)

    def go_back(self) -> None:
        """One layer out: of what the focused pane holds first, then of the screen."""
        step_out = getattr(self.focused, "step_out", None)
        if step_out is None or not step_out():
            self.leave()

    def leave(self) -> None:
        self.dismiss()

    def zoom(self) -> None:
        """Show the focused log on the whole screen or in its place again; else the curves on a chart of their own."""
        if isinstance(self.focused, LogPane):
            self.toggle_class("-zoomed")
            return
        from eagle3_tui.screens.chart import ChartScreen

        if not isinstance(self, ChartScreen):
            self.app.push_screen(ChartScreen(self.stage))

    def ask_line(self, prompt: Prompt) -> None:
        """Let a line be typed in the place of the footer."""
        if not self.query(Prompt):
            self.query_one(FooterBar).display = False
            self.mount(prompt)

    def line_done(self, back_to: Widget | None) -> None:
        """The line is gone: the footer is seen again, and whoever asked has the focus."""
        self.query_one(FooterBar).display = True
        if back_to is not None and back_to.is_attached:
            back_to.focus()
        self.hint()

    def _refused(self, act: str, *stages: str) -> bool:
        if self.panel.refuses_acts(act):
            return True
        told = (RULES[act](self.panel.picture, stage) for stage in stages or (self.stage,))
        reason = next(filter(None, told), "")
        if reason:
            self.panel.notice(f"cannot {act}: {reason}", "warn")
        return bool(reason)

    def action_start(self) -> None:
        marked = self.marked_stages
        if not self._refused("start", *marked):
            self._ask_start([marked] if marked else [("bench",), (self.stage,)], bool(marked) or self.stage_chosen)

    def _ask_start(self, choices: list[tuple[str, ...]], last: bool) -> None:
        from eagle3_tui.screens.dialogs import StartDialog

        def begin(through: tuple[str, ...] | None) -> None:
            if through:
                self.panel.ask(Start(through[-1], also=through[:-1]), f"starting through {', '.join(through)}")
                self.start_asked()

        self.app.push_screen(StartDialog(self.panel.picture, choices, last), begin)

    def start_asked(self) -> None:
        """A start was sent."""

    def action_stop(self) -> None:
        if self._refused("stop"):
            return
        from eagle3_tui.screens.dialogs import StopDialog

        stage = self.stage

        def end(sure: bool | None) -> None:
            if sure:
                self.panel.ask(Stop(stage), f"asked {stage} to save and leave")
            else:
                self.panel.notice(f"{stage} goes on")

        self.app.push_screen(StopDialog(stage), end)

    def action_bench(self) -> None:
        if not self._refused("start"):
            self._ask_start([("bench",)], True)

    def show_log_of(self, attempt: int) -> None:
        """Show the log of an attempt of the stage here."""
        from eagle3_tui.going import follow

        follow(self.panel, self.stage, attempt)

    def action_attempts(self) -> None:
        from eagle3_tui.going import choose_attempt

        if self.stage:
            choose_attempt(self.panel, self)

    def action_older_attempt(self) -> None:
        from eagle3_tui.going import step_attempt

        step_attempt(self.panel, self, -1)

    def action_newer_attempt(self) -> None:
        from eagle3_tui.going import step_attempt

        step_attempt(self.panel, self, 1)

    def action_kill(self) -> None:
        if self._refused("kill"):
            return
        from eagle3_tui.screens.typed import TypedDialog

        stage, view = self.stage, self.panel.picture.stage(self.stage)
        attempt = f", attempt {view.attempt}," if view and view.attempt else ""
        words = (
            f"Every process of {stage}{attempt} gets SIGKILL at once. What it has not saved is lost; its newest whole "
            "checkpoint stays. x asks it to save and leave instead."
        )

        def end(sure: bool | None) -> None:
            if sure:
                self.panel.ask(Stop(stage, kill=True), f"killing {stage}")

        self.app.push_screen(TypedDialog(f"Kill {stage}", words, stage), end)

    def action_resume(self) -> None:
        stage, view = self.stage, self.panel.picture.stage(self.stage)
        if self._refused("resume") or view is None:
            return
        from eagle3_tui.screens.resume import ResumeDialog

        def begin(sure: bool | None) -> None:
            if sure:
                self.panel.ask(Resume(stage), f"resuming {stage}")

        parameters = self.panel.source.parameters(stage)
        self.app.push_screen(ResumeDialog(self.panel.picture, view, parameters), begin)

    def action_restart(self) -> None:
        if self._refused("restart"):
            return
        from eagle3_tui.screens.dialogs import restart_dialog

        stage = self.stage

        def begin(sure: bool | None) -> None:
            if sure:
                self.panel.ask(Start(stage, only=True, restart=True), f"restarting {stage}")

        self.app.push_screen(restart_dialog(self.panel.picture.stage(stage)), begin)
