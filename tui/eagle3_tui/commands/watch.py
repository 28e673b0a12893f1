"""Progress of a chain on standard error: rewritten in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import TYPE_CHECKING, TextIO

from eagle3_backend.findings import Finding
from eagle3_backend.states import LinkState, RunState
from eagle3_tui.commands.output import clean, describe, duration

if TYPE_CHECKING:
    from eagle3_backend.control import Control
    from eagle3_backend.control.snapshot import Outcome, Snapshot, StageView

LOOK_SECONDS = 0.5
"""How often the snapshot is looked at."""

LINE_SECONDS = 5.0
"""Least time between two progress lines of one stage where nothing can be rewritten."""

_TOLD = (RunState.STARTING, RunState.RUNNING, RunState.STOPPING)
"""States that are worth a line whenever they are met; an ended one only when the end was seen."""


class Progress:
    """Tells what changed between snapshots.

    The first picture is the starting point: stages that had ended before are not news. ``clock`` in seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._rewrites = stream.isatty()
        self._clock = clock
        self._states: dict[str, tuple[RunState, int]] | None = None
        self._link: LinkState | None = None
        self._findings: set[tuple[str, int, Finding]] = set()
        self._told_at = 0.0
        self._told = ""
        self._open_line = False

    def show(self, snapshot: Snapshot) -> None:
        """Print what is new in ``snapshot``."""
        self._show_link(snapshot)
        first = self._states is None
        states = self._states or {}
        for view in snapshot.stages:
            self._show_findings(view, silent=first and not view.state.is_active)
            if view.state is RunState.UNKNOWN:
                continue  # the link's line tells why; what comes back with it is no news
            news = states.get(view.name) != (view.state, view.attempt)
            worth_telling = view.state in _TOLD or (view.state.is_ended and not first)
            if news and worth_telling:
                self._line(_state_line(view))
                self._told = ""
            states[view.name] = (view.state, view.attempt)
        self._states = states
        running = next((view for view in snapshot.stages if view.state is RunState.RUNNING), None)
        if running is not None and running.done is not None:
            self._show_progress(_progress_line(running))

    def end(self) -> None:
        """Leave the cursor on a line of its own."""
        if self._open_line:
            self._stream.write("\n")
            self._stream.flush()
            self._open_line = False

    def _show_link(self, snapshot: Snapshot) -> None:
        link = snapshot.host.link
        if self._link is not None and link is not self._link:
            word = "; jobs keep running on the host" if link is LinkState.RECONNECTING else ""
            self._line(f"{clean(snapshot.host.name)}: {link.value}{word}")
        self._link = link

    def _show_findings(self, view: StageView, silent: bool) -> None:
        for finding in view.findings:
            known = (view.name, view.attempt, _hashable(finding))
            if known not in self._findings:
                self._findings.add(known)
                if not silent:
                    self._line(f"{view.name}: {describe(finding)}")

    def _show_progress(self, text: str) -> None:
        now = self._clock()
        if text == self._told or (not self._rewrites and self._told and now - self._told_at < LINE_SECONDS):
            return
        self._told, self._told_at = text, now
        if self._rewrites:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{text[:width]}")
            self._open_line = True
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def _line(self, text: str) -> None:
        if self._open_line:
            self._stream.write("\r\x1b[K")
            self._open_line = False
        self._stream.write(text + "\n")
        self._stream.flush()


def _hashable(finding: Finding) -> Finding:
    """The finding without its JSON values, which may be lists."""
    return Finding(finding.code, finding.severity, finding.message, finding.path)


def _state_line(view: StageView) -> str:
    parts = [f"{view.name:<9} {view.state.value}"]
    if view.attempt > 1:
        parts.append(f"attempt {view.attempt}")
    if view.state.is_ended and view.elapsed is not None:
        parts.append(duration(view.elapsed))
    if view.remark:
        parts.append(clean(view.remark))
    return "  ".join(parts)


def _progress_line(view: StageView) -> str:
    done = view.done or 0
    unit = f" {clean(view.unit)}" if view.unit else ""
    parts = [f"{view.name:<9} {done:g}{unit}" if not view.total else f"{view.name:<9} {done:g}/{view.total:g}{unit}"]
    if view.total:
        parts.append(f"{100 * done / view.total:.0f}%")
    if view.rate:
        parts.append(f"{view.rate:.3g}/s")
    if view.eta is not None:
        parts.append(f"ETA {duration(view.eta)}")
    return "  ".join(parts)


def follow(control: Control, through: str, stream: TextIO) -> Outcome:
    """Watch the chain until it is done or has stopped. An interrupt ends the watching, never the run."""
    from eagle3_backend.control.commands import Await

    future = control.submit(Await(through))
    progress = Progress(stream)
    try:
        while not future.done():
            progress.show(control.snapshot())
            wait([future], timeout=LOOK_SECONDS)
        progress.show(control.snapshot())
    finally:
        progress.end()
    outcome: Outcome = future.result()
    return outcome
