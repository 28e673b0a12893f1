"""The panel: takes the newest snapshot, hands it to the screen, and routes commands, answers and questions."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual import constants
from textual.events import Event, Key, Resize
from textual.message import Message
from textual.screen import Screen

from eagle3_backend.control.commands import Command, Open, ReconnectNow, Resume, Start, Swap
from eagle3_backend.control.snapshot import Snapshot, Started
from eagle3_backend.findings import FindingError
from eagle3_tui import rules
from eagle3_tui.benchfigures import Bench
from eagle3_tui.bindings import bindings
from eagle3_tui.calling import Calls
from eagle3_tui.configuration import Configuration
from eagle3_tui.garbage import QUIET_SECONDS, Garbage
from eagle3_tui.hangup import leave_on_signals
from eagle3_tui.hostkeys import HostKeys
from eagle3_tui.importing import import_screens
from eagle3_tui.leaving import Leaving
from eagle3_tui.pace import COVERED_SECONDS, ESCAPE_SECONDS, Pace, age_seconds
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.screens.dashboard import Dashboard
from eagle3_tui.source import Source
from eagle3_tui.text import clean
from eagle3_tui.theme import PALETTES, Look, palette_name
from eagle3_tui.theme.textual_theme import themes
from eagle3_tui.typeahead import TypeAhead
from eagle3_tui.widgets.logpane import words_of

TICK_SECONDS = 1.0
"""Between two looks at what time alone changes."""
NOTICE_SECONDS = 5.0
DEFAULTS = Configuration()

Then = Callable[[Any], None]


class News(Message):
    """There may be a new snapshot; posted from the thread that made it, and one for any number of them."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, News)


class Answered(Message):
    """A command's future is done; posted from the thread that finished it."""

    def __init__(
        self,
        command: Command,
        words: str,
        outcome: Future[Any],
        then: Then | None = None,
        refused: Then | None = None,
    ) -> None:
        super().__init__()
        self.command = command
        self.words = words
        self.outcome = outcome
        self.then = then
        self.refused = refused


class Panel(Leaving, inherit_bindings=False):
    """Only routes: screens draw, `source` works."""

    CSS_PATH = Path(__file__).parent / "theme" / "panel.tcss"
    BINDINGS = bindings("all")
    ENABLE_COMMAND_PALETTE = False
    TITLE = "eagle3-tui"

    def __init__(
        self,
        source: Source,
        profile: Path,
        settings: tuple[str, ...] = (),
        *,
        ascii_only: bool = False,
        autostart: str = "",
        readonly: bool = False,
        own: Configuration = DEFAULTS,
        reduced: bool = False,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.source = source
        self.picture = Snapshot()
        name = palette_name(self.console.color_system)
        self.look = Look(PALETTES[name], ascii_only)
        self.wall, self.monotonic = wall, monotonic
        self.readonly = readonly
        self.seen_events = 0.0
        """Wall time of the newest event that the operator has looked at."""
        self.message: tuple[str, str] = ("", "text")
        self.bench_files: dict[str, Bench] = {}
        """Benches that were opened from files, by path, to be compared."""
        self._open = Open(profile, settings)
        self._given = len(settings)
        self._autostart = autostart
        self._message_until = 0.0
        self._host_keys = HostKeys()
        self._ahead = TypeAhead(self)
        self._calls = Calls(wall(), bell=own.bell, desktop=own.desktop)
        self._pace = Pace(reduced)
        self._later: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        if reduced:
            self.animation_level = "none"
        self._garbage = Garbage(self.monotonic())
        for theme in themes():
            self.register_theme(theme)
        self.theme = name
        self.set_class(ascii_only, "-ascii")

    @property
    def opened(self) -> Open:
        """The profile that is worked on, and the settings that count more than it."""
        return self._open

    @property
    def edits(self) -> tuple[str, ...]:
        """Settings of the panel's own making, which no file holds."""
        return self._open.settings[self._given :]

    def get_default_screen(self) -> Screen[None]:
        return Dashboard()

    def on_mount(self) -> None:
        leave_on_signals(self._leave_by_signal)
        if "ESCDELAY" not in os.environ:
            constants.ESCAPE_DELAY = ESCAPE_SECONDS  # type: ignore[misc]
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Start the work once the first frame is out."""
        self._garbage.begin()
        import_screens()
        self.source.start(self._changed)
        self.ask(self._open)
        self.pull()
        self.set_interval(TICK_SECONDS, self._tick)

    def _changed(self) -> None:
        """May come from any thread, and after the panel's end."""
        self.post_message(News())

    def on_news(self) -> None:
        self.pull()

    def pull(self) -> None:
        """Draw the newest snapshot, if it is new, as soon as the chosen rate allows."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        snapshot, now = self.source.snapshot(), self.monotonic()
        if snapshot.version == self.picture.version or not self.screen_stack:
            return
        wait = self._pace.wait(now)
        if wait > 0:
            if math.isfinite(wait):
                self._later = asyncio.get_running_loop().call_later(wait, self._changed)
            return
        self._pace.drawn(now)
        self.picture = snapshot
        for screen in self._visible():
            if screen is self.screen or now - screen.shown_at >= COVERED_SECONDS:
                screen.show_news(snapshot)
        self._calls.take(self, snapshot)
        self._host_keys.take(self, snapshot)
        self._start_once(snapshot)

    def _visible(self) -> list[PanelScreen]:
        """The screen that is seen, under dialogs too; not one that is being made, and none while the panel leaves."""
        seen: list[PanelScreen] = []
        if not self.is_running:
            return seen
        for screen in reversed(self.screen_stack):
            if isinstance(screen, PanelScreen) and screen.is_mounted:
                seen.append(screen)
            if not screen.is_modal:
                break
        return seen

    def _tick(self) -> None:
        if not self.screen_stack:  # a panel that leaves has put its screens away already
            return
        if self.message[0] and self.monotonic() >= self._message_until:
            self.message = ("", "text")
            self._hint()
        now = self.monotonic()
        if (answering := self._pace.answering(now)) > 0:
            asyncio.get_running_loop().call_later(answering, self._tick)
            return
        for screen in self._visible():
            covered = screen is not self.screen
            if covered and screen.shown != self.picture.version and now - screen.shown_at >= COVERED_SECONDS:
                screen.show(self.picture)
            # A timer's tick comes a little early or late.
            if now - screen.ticked_at >= age_seconds(self.picture.host, now, covered) - TICK_SECONDS / 2:
                screen.ticked_at = now
                screen.tick()
        # A one-shot timer of Textual that begins late never fires, and with the one behind a resize no other is heard.
        if self.screen.outer_size != self.size:
            self.screen.post_message(Resize(self.size, self.size))
        self._garbage.tick(now, settled=len(self.screen_stack) == 1)

    def _collect(self) -> None:
        """The operator pauses."""
        self._garbage.collect(self.monotonic(), settled=len(self.screen_stack) == 1)

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key):
            self._pace.pressed(self.monotonic())
            self._garbage.pressed()
            if self._pause is not None:
                self._pause.cancel()
            self._pause = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._collect)
            if not event.is_forwarded and event.key != "ctrl+c" and self._ahead.take(event):
                return
        elif isinstance(event, Resize):
            self._garbage.resized(self.monotonic())
        await super().on_event(event)

    def on_key(self, event: Key) -> None:
        """What panes left over, before it is taken for a command."""
        if self._ahead.missed(event):
            event.prevent_default()

    def _hint(self) -> None:
        for screen in self._visible():
            screen.hint()

    def notice(self, words: str, role: str = "text") -> None:
        """Say something in the footer for a few seconds."""
        self.message = (self.look.remote(clean(words)), role)
        self._message_until = self.monotonic() + NOTICE_SECONDS
        self._hint()

    def refuses_acts(self, act: str) -> bool:
        """Say so when the panel was opened to look only."""
        if self.readonly:
            self.notice(f"cannot {act}: the panel was opened with --readonly", "warn")
        return self.readonly

    def refused_by_the_way(self, problem: BaseException) -> None:
        self.notice(words_of(problem), "warn")

    def open_profile(self, profile: Path) -> None:
        """Work on another profile; what runs on the host before goes on."""
        self._work_with(replace(self._open, profile=profile))
        self._host_keys.ask_again()
        self.ask(self._open, f"opened {profile.stem}")

    def settle(self, settings: tuple[str, ...], then: Callable[[], None]) -> None:
        """Go on with these settings on top, then do ``then``; settings that are refused leave all as it was."""
        opened = replace(self._open, settings=(*self._open.settings, *settings))

        def settled(_: Any) -> None:
            self._work_with(opened)
            then()

        def refused(problem: BaseException) -> None:
            from eagle3_tui.screens.dialogs import MessageDialog

            findings = problem.findings if isinstance(problem, FindingError) else ()
            self.push_screen(MessageDialog("Not possible", findings, "" if findings else words_of(problem)))

        self.inquire(opened, settled, refused)

    def written(self, profile: Path) -> None:
        """The panel's own settings are in this profile now."""
        self._work_with(replace(self._open, settings=self._open.settings[: self._given]))
        self.open_profile(profile)

    def _work_with(self, opened: Open) -> None:
        self._open = opened
        self.source.work_with(opened)

    def ask(self, command: Command, words: str = "") -> None:
        """Send a command; ``words`` are said when it was carried out, and a refusal opens its dialog."""
        outcome = self.source.submit(command)
        outcome.add_done_callback(lambda done: self.post_message(Answered(command, words, done)))

    def inquire(self, command: Command, then: Then, refused: Then | None = None) -> None:
        """Ask a question by the way: ``then`` hears the answer, ``refused`` what stands against it; no dialog."""
        outcome = self.source.submit(command)
        outcome.add_done_callback(lambda done: self.post_message(Answered(command, "", done, then, refused)))

    def on_answered(self, event: Answered) -> None:
        if event.outcome.cancelled():
            return
        problem = event.outcome.exception()
        if event.then is not None:
            if problem is None:
                event.then(event.outcome.result())
            elif event.refused is not None:
                event.refused(problem)
        elif problem is None:
            if isinstance(event.command, Swap):
                self._work_with(replace(self._open, settings=(*self._open.settings, *event.command.settings)))
            self._tell(event.outcome.result(), event.words)
        elif isinstance(problem, FindingError):
            self._refuse(event.command, problem)
        else:
            from eagle3_tui.screens.dialogs import MessageDialog

            self.push_screen(MessageDialog("Engine fault", words=f"{type(problem).__name__}: {clean(problem, 1000)}"))

    def _tell(self, result: Any, words: str) -> None:
        if isinstance(result, Started):
            if result.already_running:
                words = "it is running already"
            elif not result.runs:
                words = "everything is done already; nothing was started"
        if words:
            self.notice(words, "good")

    def _refuse(self, command: Command, problem: FindingError) -> None:
        codes = {finding.code for finding in problem.findings}
        if codes & {"ssh_host_key_unknown", "ssh_host_key_changed"}:
            return  # the host's own dialog asks
        from eagle3_tui.screens.dialogs import MessageDialog

        if not isinstance(command, Start | Resume | Swap):
            opening = isinstance(command, Open)
            if opening and not self.picture.stages and isinstance(self.screen_stack[0], Dashboard):
                self.screen_stack[0].failed()
            heading = "Cannot open the campaign" if opening else f"{type(command).__name__} failed"
            self.push_screen(MessageDialog(heading, problem.findings))
            return
        from eagle3_tui.screens.refused import RefusedDialog

        def go_on(accepted: tuple[str, ...] | None) -> None:
            if accepted:
                again = replace(command, accept=(*command.accept, *accepted))
                if isinstance(again, Start | Swap):
                    again = replace(again, asked=self.monotonic())
                self.ask(again, "accepted " + ", ".join(accepted))

        self.push_screen(RefusedDialog(problem.findings), go_on)

    def _start_once(self, snapshot: Snapshot) -> None:
        """The chain that the command line asked for, as soon as the host is there."""
        if self._autostart and not rules.cannot_start(snapshot):
            through, self._autostart = self._autostart, ""
            self.ask(Start(through), f"started through {through}")

    def action_reconnect(self) -> None:
        self._host_keys.ask_again()
        # Without stages the profile itself was refused; it may have been corrected meanwhile.
        self.ask(ReconnectNow() if self.picture.stages else self._open, "trying the link")
        refresh_data = getattr(self.screen, "refresh_data", None)
        if refresh_data is not None:
            refresh_data()

    def action_compare(self) -> None:
        """Choose two things to put side by side; on a stage its own runs come first."""
        from eagle3_tui.choosing import Choosing

        screen = self.screen
        Choosing(self, screen.stage if isinstance(screen, PanelScreen) and screen.stage_chosen else "").begin()

    def action_rate(self) -> None:
        """Another redraw rate; links and logs go on at their own."""
        rate = self._pace.choose_next()
        self.notice(f"at most {rate:g} redraws a second" if rate else "redrawing is paused: P goes on")
        self.pull()
