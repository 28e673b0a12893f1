"""The journal: a host's append-only record of a run, one JSON object a line.

A line is one ``write`` of the whole line on an ``O_APPEND`` descriptor, so supervisor and stage can share the file.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from pathlib import Path
from typing import Any, Optional

from eagle3_backend.findings import Finding

MAX_LINE = 256 * 1024
"""Longest line written, bytes; a longer value is replaced by a note of its size."""


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they travel as text and stay visible."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


class Journal:
    """Writer of one run's journal; ``writer`` is ``supervisor`` or ``stage``, each with its own sequence numbers.

    Every method that writes raises OSError where the disk does.
    """

    def __init__(self, path: Path, writer: str) -> None:
        self._descriptor = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._writer = writer
        self._sequence = 0
        self._lock = threading.Lock()
        self._torn = False

    def write(self, kind: str, **values: Any) -> None:
        """Append one line of this kind."""
        with self._lock:
            head = {"w": self._writer, "seq": self._sequence, "t": time.time(), "mono": time.monotonic(), "kind": kind}
            line = self._encode({**head, **_plain(values)})
            if len(line) > MAX_LINE:
                line = self._encode({**head, "too_long": len(line)})
            self._sequence += 1
            # A disk that ran full may have taken a part of the last line: end it, so that it spoils no other.
            line = b"\n" + line if self._torn else line
            self._torn = os.write(self._descriptor, line) != len(line)

    @staticmethod
    def _encode(value: Any) -> bytes:
        return (
            json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace") + b"\n"
        )

    def state(self, state: str, **values: Any) -> None:
        self.write("state", state=state, **values)

    def progress(self, done: float, total: Optional[float], unit: str, rate: Optional[float] = None) -> None:
        """``rate`` in units a second; ``total`` None when it is not known."""
        self.write("progress", done=done, total=total, unit=unit, rate=rate)

    def metric(self, step: float, **values: float) -> None:
        """Values of this step by name; a slash in a name is written as given (``**{"train/loss": 1.0}``)."""
        self.write("metric", step=step, values=values)

    def artifact(self, kind: str, path: str, size: int, fingerprint: str) -> None:
        self.write("artifact", artifact=kind, path=path, bytes=size, fingerprint=fingerprint)

    def checkpoint(self, step: int, path: str) -> None:
        self.write("checkpoint", step=step, path=path)

    def finding(self, finding: Finding) -> None:
        self.write("finding", **finding.to_json())

    def note(self, text: str) -> None:
        self.write("note", text=text)
