"""The states of runs and links: one enum for the panel, the commands and the agent."""

from __future__ import annotations

from enum import Enum


class RunState(str, Enum):
    """Where a stage stands. Only `exit.json` makes a run done, failed or stopped; silence never does."""

    BLOCKED = "blocked"
    READY = "ready"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"
    LOST = "lost"
    UNKNOWN = "unknown"

    @property
    def is_active(self) -> bool:
        """True while a supervisor is (believed) at work."""
        return self in (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.STOPPING)

    @property
    def is_ended(self) -> bool:
        return self in (RunState.DONE, *RESUMABLE)


RESUMABLE = (RunState.STOPPED, RunState.FAILED, RunState.CRASHED, RunState.LOST)
"""Ended without its artifact: a next attempt can go on from what is there."""


class LinkState(str, Enum):
    """How a host is reached right now. A link state never changes the state of a run."""

    OFFLINE = "offline"
    CONNECTING = "connecting"
    LIVE = "live"
    STALE = "stale"
    RECONNECTING = "reconnecting"
    DENIED = "denied"
    KEY_CHANGED = "key_changed"


EXIT_STOPPED = 75
"""Exit code of a stage that saved its work and left because it was asked to (EX_TEMPFAIL of sysexits.h)."""

EXIT_FINDING = 1
"""Exit code of a stage that ended with a finding of severity error in its journal."""
