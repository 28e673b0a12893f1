"""Disk space: compared with the forecast before the work, and watched during it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from eagle3_backend.findings import Finding, FindingError, error

INTERVAL = 2.0
"""Seconds between two looks."""


def check_forecast(path: Path, needed: int, floor: int) -> None:
    """Raise FindingError when ``needed`` bytes and the ``floor`` to be left free are more than the mount has."""
    free = shutil.disk_usage(path).free
    if needed + floor > free:
        raise FindingError(_insufficient(path, f"{needed / 1e9:.1f} GB are forecast", needed + floor, free))


def _insufficient(path: Path, why: str, expected: int, free: int) -> Finding:
    return error(
        "disk_space_insufficient",
        f"{why}, {free / 1e9:.1f} GB are free at {path}.",
        path=str(path),
        expected=expected,
        actual=free,
        fix="Free some space or move the workspace; what was made so far is kept.",
    )


class Watch:
    """Ends the work before the file system has less than ``floor`` bytes left."""

    def __init__(self, path: Path, floor: int) -> None:
        self._path = path
        self._floor = floor
        self._looked = 0.0

    def check(self) -> None:
        """Look, at most every `INTERVAL` seconds. Raises FindingError."""
        now = time.monotonic()
        if now - self._looked < INTERVAL:
            return
        self._looked = now
        free = shutil.disk_usage(self._path).free
        if free < self._floor:
            raise FindingError(_insufficient(self._path, f"{self._floor / 1e9:.1f} GB stay free", self._floor, free))
