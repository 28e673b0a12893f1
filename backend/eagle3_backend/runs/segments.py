"""The laptop's copy of a log: segment files named ``<generation>-<start>``, whose start + length is the offset.

No second record can disagree with the bytes. Programs that follow one log write the same bytes to the same places.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Segments:
    """The segments of one log in one directory. A generation is one life of the log file on its host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def generation(self) -> str:
        """The generation that is stored, or "" for none. `restart` keeps it to one."""
        return next((name for name, _, _ in self._listing()), "")

    def end(self) -> int | None:
        """Offset of the first byte behind the newest segment; None when nothing is stored."""
        parts = self.parts()
        return parts[-1][0] + parts[-1][1] if parts else None

    def parts(self) -> list[tuple[int, int]]:
        """(start, length) of every segment, ascending; what lies between two was skipped."""
        return sorted((start, path.stat().st_size) for _, start, path in self._listing())

    def restart(self, generation: str) -> None:
        """Forget every other generation."""
        with self._locked():
            for name, _, path in self._listing():
                if name != generation:
                    path.unlink()

    def write(self, generation: str, offset: int, data: bytes) -> None:
        """Store bytes at their offset: they extend the segment they touch, or begin one. Neighbours are joined."""
        if not data:
            return
        with self._locked():
            segments = sorted((start, path) for name, start, path in self._listing() if name == generation)
            start, path = next(
                ((start, path) for start, path in segments if start <= offset <= start + path.stat().st_size),
                (offset, self._directory / f"{generation}-{offset}"),
            )
            _write_at(path, offset - start, data)
            for follower, other in segments:
                end = start + path.stat().st_size
                if start < follower <= end:
                    _copy(other, path, follower - start)
                    other.unlink()

    def read(self, offset: int, length: int) -> bytes:
        """Stored bytes from ``offset`` on, as many as follow without a hole, at most ``length``."""
        for _, start, path in self._listing():
            if start <= offset < start + path.stat().st_size:
                with open(path, "rb") as file:
                    file.seek(offset - start)
                    return file.read(length)
        return b""

    def tail(self, length: int) -> tuple[int, bytes]:
        """(offset, bytes) of the newest stretch, at most ``length`` and not across a hole."""
        parts = self.parts()
        if not parts:
            return 0, b""
        start, size = parts[-1]
        offset = max(start, start + size - length)
        return offset, self.read(offset, length)

    def _listing(self) -> list[tuple[str, int, Path]]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            generation, dash, start = name.rpartition("-")
            if dash and start.isdigit():
                found.append((generation, int(start), self._directory / name))
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _write_at(path: Path, position: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, position)
            view, position = view[written:], position + written
    finally:
        os.close(descriptor)


def _copy(source: Path, path: Path, position: int) -> None:
    with open(source, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            _write_at(path, position, block)
            position += len(block)
