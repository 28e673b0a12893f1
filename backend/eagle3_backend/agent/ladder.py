"""The stop ladder: ask the stage, then its group, then end everything that belongs to the attempt."""

from __future__ import annotations

import signal
import time
from typing import Callable, List, Mapping, Optional

from eagle3_backend.agent import processes
from eagle3_backend.agent.processes import Process

KILL = "kill"
"""File in the run directory that asks for the last rung, beside the one that asks for a stop."""

MARKER = "EAGLE3_ATTEMPT"
"""Environment variable that every process of an attempt inherits; its value is the attempt's run directory."""


def members_of(root: Optional[int], marker: str) -> List[Process]:
    """Every living process of an attempt: what descends from ``root``, and whatever carries its marker."""
    everything = processes.table()
    below = processes.descendants(root, everything) if root else []
    found = {process.pid: process for process in below}
    for process in processes.marked(MARKER, marker, everything.values()):
        found[process.pid] = process
    return list(found.values())


class StopLadder:
    """Climbs one rung at a time; call `advance` a few times a second until nothing is left.

    Rung 1 is SIGTERM to ``first`` alone: it saves and ends its own engines, which a signal to all would kill under it.
    After ``save_seconds`` rung 2 is SIGTERM to its process group (left out for ``serve``, which has nothing to save).
    After ``terminate_seconds`` rung 3 is SIGKILL to every member, again and again, since a member may fork meanwhile.
    """

    def __init__(self, first: Optional[Process], members: Callable[[], List[Process]], spec: Mapping[str, object]):
        parameters = spec.get("parameters")
        waits = parameters if isinstance(parameters, Mapping) else {}
        self._first = first
        self._members = members
        self._save_seconds = float(waits.get("save_seconds", 60.0))
        self._terminate_seconds = float(waits.get("terminate_seconds", 15.0))
        self._asks_group = spec.get("stage") != "serve"
        self._deadline = 0.0
        self.rung = 0
        self.hurry = False
        """Somebody does not want to wait: the next step is the last rung."""
        self.killing_since: Optional[float] = None

    def advance(self) -> bool:
        """Do what is due; True when a new rung was taken."""
        before = self.rung
        if self.hurry and self.rung < 3:
            self._climb(3, 0.0)
        elif self.rung == 0 and self._first is not None:
            processes.send(self._first, signal.SIGTERM)
            self._climb(1, self._save_seconds)
        elif self.rung == 0:
            self.sweep()
        elif self.rung == 1 and time.monotonic() >= self._deadline:
            self._leave_saving()
        elif self.rung == 2 and time.monotonic() >= self._deadline:
            self._climb(3, 0.0)
        if self.rung == 3:
            self._kill()
        return self.rung != before

    def sweep(self) -> None:
        """The first process is gone: ask what it left behind to end, and go on from there."""
        if self.rung < 2:
            for process in self._members():
                processes.send(process, signal.SIGTERM)
            self._climb(2, self._terminate_seconds)

    def _leave_saving(self) -> None:
        if not self._asks_group or self._first is None:
            self._climb(3, 0.0)
            return
        for process in self._members():
            if process.group == self._first.pid:
                processes.send(process, signal.SIGTERM)
        self._climb(2, self._terminate_seconds)

    def _climb(self, rung: int, seconds: float) -> None:
        self.rung = rung
        self._deadline = time.monotonic() + seconds
        if rung == 3:
            self.killing_since = time.monotonic()

    def _kill(self) -> None:
        for process in self._members():
            processes.send(process, signal.SIGKILL)
