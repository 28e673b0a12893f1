"""The heartbeat of a supervisor: a small file, written over in place so that a full disk does not stop it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple, Optional

INTERVAL = 5.0
"""Seconds between beats."""
STALE = 3 * INTERVAL
"""Three missed beats: seconds after which a supervisor counts as silent."""


class Beat(NamedTuple):
    """When the last beat was: the host's monotonic and wall clocks, seconds."""

    monotonic: float
    wall: float


class Heartbeat:
    """Writes the beats of one attempt."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / "heartbeat", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._next = 0.0

    def beat(self) -> None:
        """Write a beat if one is due."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL
            try:
                os.pwrite(self._descriptor, f"{now:020.3f} {time.time():020.3f}\n".encode(), 0)
            except OSError:
                # Shown by itself: readers see the silence.
                pass


def last_beat(directory: Path) -> Optional[Beat]:
    try:
        monotonic, wall = (directory / "heartbeat").read_bytes().split()
        return Beat(float(monotonic), float(wall))
    except (OSError, ValueError):
        return None
