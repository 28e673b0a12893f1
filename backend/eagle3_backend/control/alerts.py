"""What is worth calling a person for: each once when it begins, and again only after it has been well for a while."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from eagle3_backend.control.snapshot import Snapshot, StageView
from eagle3_backend.states import LinkState, RunState

CALM_SECONDS = 60.0
"""How long a trouble has to be away before it may call again."""
LINK_SECONDS = 120.0
IDLE_SECONDS = 900.0
IDLE_PERCENT = 5.0
STALL_SECONDS = 1800.0
"""How long a stage that has told of progress may tell of none."""
DISK_LEFT = 0.05
"""Share of the workspace's disk below which it needs a person."""
LOUD_CODES = frozenset({"loss_nan", "no_progress"})

_ENDED = (RunState.DONE, RunState.FAILED, RunState.CRASHED, RunState.LOST)


@dataclass(frozen=True)
class Alert:
    """``kind`` is a state that a stage ended in, `link`, `disk`, `idle`, or the code of a finding.

    ``source`` is the stage or the host, ``severity`` the word of an event. ``name`` is the same for everybody who sees
    this alert.
    """

    kind: str
    source: str
    words: str
    severity: str = "error"
    name: str = field(default="", compare=False)

    @property
    def is_end(self) -> bool:
        """Whether it happens once for good; anything else may go away and come back."""
        return self.kind in _ENDED


@dataclass(frozen=True)
class Quiet:
    """A stretch of every day in which nobody is called: minutes of the local day; it may go over midnight."""

    begin: int
    end: int

    def holds(self, wall: float) -> bool:
        """Whether ``wall``, in seconds, lies in it."""
        local = time.localtime(wall)
        now = 60 * local.tm_hour + local.tm_min
        return self.begin <= now < self.end if self.begin <= self.end else not self.end <= now < self.begin


@dataclass(frozen=True)
class Notices:
    """How a person is called: an address for a POST, or none, and when not."""

    webhook: str = ""
    quiet: Quiet | None = None


class Alerts:
    """Looks at every picture. Times are laptop monotonic seconds."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[int, RunState]] = {}
        self._ringing: dict[str, float] = {}
        self._idle_since: float | None = None
        self._moved: dict[str, tuple[object, float]] = {}

    def observe(self, snapshot: Snapshot, now: float) -> list[Alert]:
        """What began since the last picture. How a stage ended before the first picture is no news."""
        found = self._ended(snapshot)
        for name, alert in self._troubles(snapshot, now).items():
            if name not in self._ringing:
                found.append(alert)
            self._ringing[name] = now
        self._ringing = {name: at for name, at in self._ringing.items() if now - at <= CALM_SECONDS}
        return found

    def seen(self) -> dict[str, float]:
        """The names of the troubles that are here, or were a moment ago, and when they were seen last."""
        return dict(self._ringing)

    def _ended(self, snapshot: Snapshot) -> list[Alert]:
        found = []
        for view in snapshot.stages:
            before, state = self._states.get(f"{view.name}/{view.run}"), view.state
            now = (view.attempt, state)
            if state is RunState.UNKNOWN:
                continue  # a lost link ends nothing
            # A short attempt may begin and end between two looks.
            moved = before is not None and before != now and (before[1].is_active or now[0] > before[0])
            if moved and state in _ENDED:
                severity = "ok" if state is RunState.DONE else "error"
                words = state.value + (f": {view.remark}" if view.remark else "")
                name = f"{view.run}/{view.attempt}/{state.value}"
                found.append(Alert(state.value, view.name, words, severity, name))
            self._states[f"{view.name}/{view.run}"] = now
        return found

    def _troubles(self, snapshot: Snapshot, now: float) -> dict[str, Alert]:
        host, machine = snapshot.host, snapshot.host.machine
        found = []
        if host.link is LinkState.RECONNECTING and now - host.since > LINK_SECONDS:
            found.append(_of_host("link", host.name, "no link for two minutes; what runs there goes on"))
        if machine.disk_total and machine.disk_free is not None and machine.disk_free < DISK_LEFT * machine.disk_total:
            found.append(_of_host("disk", host.name, "the workspace's disk is nearly full"))
        for view in snapshot.stages:
            if view.state.is_active:
                codes = {finding.code for finding in view.findings} & LOUD_CODES
                found += [_of_stage(code, view, code) for code in sorted(codes)]
        for view in snapshot.stages:
            if self._is_stalled(view, snapshot, now):
                words = f"no progress for {STALL_SECONDS / 60:.0f} minutes"
                found.append(_of_stage("no_progress", view, words))
        if self._gpus_idle(snapshot, now):
            found.append(_of_host("idle", host.name, "the GPUs have been idle for a quarter of an hour"))
        return {alert.name: alert for alert in found}

    def _is_stalled(self, view: StageView, snapshot: Snapshot, now: float) -> bool:
        """Nothing is known of a stage behind a lost link; one that never told of progress, as a service, is no case."""
        mark = (view.run, view.attempt, view.done, tuple(view.metrics.items()))
        before, since = self._moved.get(view.name, (None, now))
        told = view.state is RunState.RUNNING and view.done is not None and view.total is not None
        if not told or mark != before or snapshot.host.link is not LinkState.LIVE:
            self._moved[view.name] = (mark, now)
            return False
        return now - since > STALL_SECONDS

    def _gpus_idle(self, snapshot: Snapshot, now: float) -> bool:
        use = [gpu.utilisation for gpu in snapshot.host.machine.gpus if gpu.utilisation is not None]
        working = any(view.state.is_active and view.state is not RunState.QUEUED for view in snapshot.stages)
        if snapshot.host.link is not LinkState.LIVE or not (use and working and max(use) < IDLE_PERCENT):
            self._idle_since = None
            return False
        self._idle_since = now if self._idle_since is None else self._idle_since
        return now - self._idle_since > IDLE_SECONDS


def _of_host(kind: str, host: str, words: str) -> Alert:
    return Alert(kind, host, words, name=kind)


def _of_stage(kind: str, view: StageView, words: str) -> Alert:
    return Alert(kind, view.name, words, name=f"{view.run}/{kind}")
