"""The part of a log that the panel holds: consecutive lines from anywhere in it, a bounded number of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from eagle3_backend.control.snapshot import LogView
from eagle3_backend.runs.loglines import LogLine

if TYPE_CHECKING:
    from eagle3_backend.runs.logreader import LogBlock

MAX_LINES = 20_000
OLD_LINES = 200
"""Lines kept of a log that began anew."""

NOWHERE = -1
"""Offset of a line that is no longer part of the log."""


class LogWindow:
    """``lines`` cover the bytes from ``start`` to ``end``: all lines there, or those that ``match``."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.start = 0
        self.end = 0
        self.last = True
        """The end of the log is in it."""
        self.generation = ""
        self.match: Callable[[str], bool] | None = None
        self._old = 0

    @property
    def first(self) -> bool:
        """The beginning of the log is in it."""
        return self.start == 0

    def clear(self) -> None:
        self.lines.clear()
        self.start = self.end = self._old = 0
        self.last = True

    def take_tail(self, view: LogView, stay: bool) -> int:
        """Grow with the newest lines; the answer is how many left at the front.

        With ``stay`` somebody reads here: what would make the window lose its place waits until it is asked for.
        """
        if view.generation != self.generation:
            self._begin_anew(view.generation)
        tail = view.lines
        if not tail or (tail[-1].end <= self.end and self.last and not self._ends_in_half()):
            return 0
        joins = tail[0].offset <= self.end
        if not joins or (stay and len(self.lines) >= MAX_LINES):
            if stay:
                self.last = False
                return 0
            if not joins:
                del self.lines[self._old :]
                self.start = self.end = tail[0].offset
        elif not self.last and stay and tail[-1].end > self.end:
            self.last = True
        self._drop_half()
        self._extend(tail[bisect_left(tail, self.end, key=lambda line: line.offset) :])
        self.end = max(self.end, tail[-1].end)
        self.last = True
        return self._trim_front()

    def put_before(self, block: LogBlock) -> int:
        """Lines that end where the window starts; the answer is how many were added."""
        if block.generation != self.generation or block.end != self.start or not self.lines[self._old :]:
            return 0
        self.lines[self._old : self._old] = block.lines
        self.start = block.start
        if len(self.lines) > MAX_LINES:
            del self.lines[MAX_LINES:]
            self.end, self.last = self.lines[-1].end, False
        return len(block.lines)

    def fill(self, rule: LogLine, block: LogBlock) -> int:
        """Put what was skipped in the place of its rule; the answer is how many lines that adds."""
        if rule not in self.lines or block.end != rule.end:
            return 0
        at = self.lines.index(rule)
        self.lines[at : at + 1] = block.lines
        if at == self._old:
            self.start = block.start
        return len(block.lines) - 1

    def put_after(self, block: LogBlock) -> int:
        """Lines from where the window ends; the answer is how many left at the front."""
        if block.generation != self.generation or block.start != self.end:
            return 0
        self._drop_half()
        self.lines += block.lines
        self.end, self.last = block.end, block.last
        return self._trim_front()

    def replace(self, block: LogBlock) -> None:
        """Another part of the log."""
        self.lines = list(block.lines)
        self._old = 0
        self.start, self.end, self.last = block.start, block.end, block.last
        self.generation = block.generation

    def index_of(self, offset: int) -> int | None:
        """The line in which this byte lies; None when it is not in the window."""
        if not self.start <= offset < self.end:
            return None
        at = bisect_left(self.lines, offset + 1, key=lambda line: line.offset) - 1
        return at if at >= self._old else None

    def _begin_anew(self, generation: str) -> None:
        """The log's file was made again: what was seen of the old one stays for a while above a rule."""
        if self.generation and self.lines:
            old = [line._replace(offset=NOWHERE, end=NOWHERE, kind="old") for line in self.lines[-OLD_LINES:]]
            self.lines = [*old, LogLine(NOWHERE, NOWHERE, "", "restarted")]
        self._old = len(self.lines) if self.generation else 0
        self.start = self.end = 0
        self.last = True
        self.generation = generation

    def _ends_in_half(self) -> bool:
        return bool(self.lines) and self.lines[-1].kind == "partial"

    def _drop_half(self) -> None:
        if self._ends_in_half():
            self.end = self.lines.pop().offset

    def _extend(self, lines: Iterable[LogLine]) -> None:
        match = self.match
        self.lines += lines if match is None else [line for line in lines if line.kind == "skipped" or match(line.text)]

    def _trim_front(self) -> int:
        gone = len(self.lines) - MAX_LINES
        if gone <= 0:
            return 0
        del self.lines[:gone]
        self._old = max(0, self._old - gone)
        if not self._old:
            self.start = self.lines[0].offset
        return gone
