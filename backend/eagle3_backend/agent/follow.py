"""Subscriptions: what a gateway sends by itself, one frame at a time, whenever its reader has room.

A followed file is its own queue: a subscription holds a position and reads when the channel takes more, so a slow
reader costs no memory and blocks nobody.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from eagle3_backend.agent import frames
from eagle3_backend.agent.workspace import read_json
from eagle3_backend.findings import FindingError, error

CHUNK = 256 * 1024
"""Most bytes in one push, and what is left of a log after a skip."""
BEHIND = 2 * 1024 * 1024
"""A log further behind than this skips to its tail, bytes."""

FOLLOWED = ("journal.jsonl", "output.log")
READABLE = (*FOLLOWED, "spec.json", "exit.json", "supervisor.json", "supervisor.log")


def generation_of(directory: Path) -> str:
    """The id under which the offsets of this attempt's files count. Raises FindingError before the first byte."""
    generation = (read_json(directory / "supervisor.json") or {}).get("generation")
    if not isinstance(generation, str):
        raise FindingError(
            error(
                "run_not_started",
                "This attempt has no supervisor yet, so there is nothing to follow.",
                path=f"{directory.parent.name}/{directory.name}",
                fix="Ask again in a moment.",
            )
        )
    return generation


def check_name(name: str, allowed: tuple) -> str:
    if name not in allowed:
        raise FindingError(
            error("request_invalid", f"{name[:80]} is not handed out.", path="file", expected=list(allowed))
        )
    return name


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class FileFollower:
    """Follows one file of an attempt from an offset. The journal arrives whole; a log may skip, and says so."""

    def __init__(self, subscription: int, path: Path, generation: str, offset: int) -> None:
        self._subscription = subscription
        self._path = path
        self._generation = generation
        self._offset = offset
        self._skips = path.name != "journal.jsonl"
        self._descriptor: Optional[int] = None

    def next_frame(self) -> Optional[Dict[str, Any]]:
        """The next push, or None when nothing is new. Raises OSError."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return None
        behind = os.fstat(self._descriptor).st_size - self._offset
        if behind <= 0:
            return None
        head = {"sub": self._subscription, "generation": self._generation}
        if self._skips and behind > BEHIND:
            start = self._offset
            self._offset += behind - CHUNK
            return {**head, "skipped": [start, self._offset]}
        data = os.pread(self._descriptor, CHUNK, self._offset)
        frame = {**head, "offset": self._offset, "data": frames.to_text(data)}
        self._offset += len(data)
        return frame

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Watch:
    """Samples something at an interval; a reader that is late gets the newest sample only."""

    def __init__(self, subscription: int, interval: float, sample: Callable[[], Dict[str, Any]]) -> None:
        self._subscription = subscription
        self._interval = interval
        self._sample = sample
        self._latest: Optional[Dict[str, Any]] = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def next_frame(self) -> Optional[Dict[str, Any]]:
        latest, self._latest = self._latest, None
        return {"sub": self._subscription, "telemetry": latest} if latest is not None else None

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._latest = self._sample()
            self._ended.wait(self._interval)
