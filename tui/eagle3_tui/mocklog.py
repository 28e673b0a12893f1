"""A made-up log of any length: each line is a function of its number, and takes the same number of bytes."""

from __future__ import annotations

from collections.abc import Callable

from eagle3_backend.control.snapshot import LogView
from eagle3_backend.runs.logreader import after

WIDTH = 100
"""Bytes of a line with its line feed."""
SHOWN = 300
"""Lines in a snapshot."""
GENERATION = "g1"


class MockLog:
    """Looks like the stored segments of a log with ``count`` lines."""

    def __init__(self, count: int, line: Callable[[int], str]) -> None:
        self.count = count
        self._line = line

    def parts(self) -> list[tuple[int, int]]:
        return [(0, self.count * WIDTH)] if self.count else []

    def read(self, offset: int, length: int) -> bytes:
        first, last = offset // WIDTH, min(self.count, -(-(offset + length) // WIDTH))
        lines = (self._line(number).encode()[: WIDTH - 1].ljust(WIDTH - 1) for number in range(first, last))
        data = b"".join(line + b"\n" for line in lines)
        skip = offset - first * WIDTH
        return data[skip : skip + length]

    def view(self, stage: str, attempt: int) -> LogView:
        if not self.count:
            return LogView(stage)
        block = after(self, max(0, self.count - SHOWN) * WIDTH, SHOWN)
        return LogView(stage, attempt, self.count * WIDTH, block.lines, GENERATION)
