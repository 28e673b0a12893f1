"""What is worth a bell: each once when it begins, and again only after it has been well for a while."""

from __future__ import annotations

from eagle3_backend.control.snapshot import Snapshot
from eagle3_backend.states import LinkState, RunState
from eagle3_tui import rules
from eagle3_tui.needs import DISK_LEFT

CALM_SECONDS = 60.0
"""How long a trouble has to be away before it may ring again."""
LINK_SECONDS = 120.0
IDLE_SECONDS = 900.0
IDLE_PERCENT = 5.0
LOUD_CODES = frozenset({"loss_nan", "no_progress"})

_ENDED = (RunState.DONE, RunState.FAILED, RunState.CRASHED, RunState.LOST)


class Alerts:
    """Looks at every picture. Times are laptop monotonic seconds."""

    def __init__(self) -> None:
        self._states: dict[str, RunState] = {}
        self._ringing: dict[str, float] = {}
        self._idle_since: float | None = None

    def observe(self, snapshot: Snapshot, now: float) -> list[tuple[str, str]]:
        """(words, role) of what began since the last picture. The first picture of a campaign is no news."""
        found = self._ended(snapshot)
        for name, words in self._troubles(snapshot, now).items():
            if name not in self._ringing:
                found.append((words, "bad"))
            self._ringing[name] = now
        self._ringing = {name: at for name, at in self._ringing.items() if now - at <= CALM_SECONDS}
        return found

    def _ended(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        found = []
        for view in snapshot.stages:
            before, state = self._states.get(f"{view.name}/{view.run}"), view.state
            if state is RunState.UNKNOWN:
                continue  # a lost link ends nothing
            if before is not None and before is not state and before.is_active and state in _ENDED:
                role = "good" if state is RunState.DONE else "bad"
                found.append((f"{view.name} {state.value}" + (f": {view.remark}" if view.remark else ""), role))
            self._states[f"{view.name}/{view.run}"] = state
        return found

    def _troubles(self, snapshot: Snapshot, now: float) -> dict[str, str]:
        host, machine = snapshot.host, snapshot.host.machine
        found = {}
        if host.link is LinkState.RECONNECTING and now - host.since > LINK_SECONDS:
            found["link"] = f"no link to {host.name} for two minutes"
        if machine.disk_total and machine.disk_free is not None and machine.disk_free < DISK_LEFT * machine.disk_total:
            found["disk"] = f"the workspace's disk on {host.name} is nearly full"
        for view in snapshot.stages:
            if view.state.is_active:
                codes = {finding.code for finding in view.findings} & LOUD_CODES
                found |= {f"{view.name}/{code}": f"{view.name}: {code}" for code in codes}
        if self._gpus_idle(snapshot, now):
            found["idle"] = f"the GPUs of {host.name} have been idle for a quarter of an hour"
        return found

    def _gpus_idle(self, snapshot: Snapshot, now: float) -> bool:
        use = [gpu.utilisation for gpu in snapshot.host.machine.gpus if gpu.utilisation is not None]
        idle = bool(use) and max(use) < IDLE_PERCENT and rules.active(snapshot) is not None
        if snapshot.host.link is not LinkState.LIVE or not idle:
            self._idle_since = None
            return False
        self._idle_since = now if self._idle_since is None else self._idle_since
        return now - self._idle_since > IDLE_SECONDS
