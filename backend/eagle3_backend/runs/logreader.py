"""Reads a stored log by places, lines and times: only what is asked for, however long the log is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eagle3_backend.findings import FindingError, error
from eagle3_backend.runs.loglines import MAX_CHARACTERS, LogLine, LogLines, clean, display

CHUNK = 64 * 1024
MAX_CHUNK = 1024 * 1024
LONGEST = 16 * MAX_CHUNK
BUDGET = 8 * 1024 * 1024
"""Bytes that one look for matching lines goes through."""

LOUD = r"\b(?:ERROR|CRITICAL|FATAL|Traceback|WARN(?:ING)?)\b"
"""Lines that name a level worth a jump."""

DAY = 86_400.0
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[T ])?(\d\d):(\d\d)(?::(\d\d))?")
_LOOKED_AT = 100
"""A line's time is looked for in this many characters."""


class LogBytes(Protocol):
    """What `segments.Segments` has."""

    def parts(self) -> list[tuple[int, int]]:
        """(start, length) of every stretch that is there, ascending."""

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from ``offset`` on, not across a hole."""


@dataclass(frozen=True)
class LogBlock:
    """Consecutive lines, or those of them that match. ``start`` to ``end`` is what was looked at.

    ``first`` says that nothing lies before it, ``last`` that nothing lies behind it. ``generation`` is the log file's.
    """

    start: int
    end: int
    lines: tuple[LogLine, ...]
    first: bool = False
    last: bool = False
    generation: str = ""


class Matcher:
    """A pattern with smart case: small letters match both. Raises FindingError `pattern_invalid`."""

    def __init__(self, pattern: str) -> None:
        flags = re.MULTILINE | (re.IGNORECASE if pattern == pattern.lower() else 0)
        try:
            self.pattern = re.compile(pattern, flags)
        except (re.error, OverflowError, RecursionError) as problem:
            raise FindingError(
                error("pattern_invalid", f"The pattern is no regular expression: {problem}.", actual=pattern[:200])
            ) from problem
        # Such a pattern may match a line and not the text around it.
        self._by_line = any(part in pattern for part in (r"\A", r"\Z", "(?!", "(?<!"))

    def __call__(self, text: str) -> bool:
        return self.pattern.search(clean(text) if "\x1b" in text else text) is not None

    def rules_out(self, data: bytes) -> bool:
        """True when surely no line of these bytes matches, which is cheaper to find out than which line does."""
        if self._by_line or not data.isascii() or b"\x1b" in data or b"\r" in data:
            return False
        if max(map(len, data.split(b"\n"))) > MAX_CHARACTERS:
            return False
        return self.pattern.search(data.decode("ascii")) is None


def before(log: LogBytes, at: int | None, count: int, match: Matcher | None = None) -> LogBlock:
    """Up to ``count`` lines that end at ``at`` (None: the end of the log). Without ``match`` they are all lines there.

    A stretch that is not stored is one line of kind `skipped`, and the block ends there.
    """
    parts = log.parts()
    if not parts:
        return LogBlock(0, 0, (), first=True, last=True)
    end = sum(parts[-1]) if at is None else min(at, sum(parts[-1]))
    start, floor = _part_before(parts, end)
    if start == end:
        return _hole(floor, end)
    lines: list[LogLine] = []
    position, step, top = end, CHUNK, end
    rest = b""
    while position > start and len(lines) < count and (end - position < BUDGET or top == end):
        size = min(step, position - start)
        position -= size
        data = log.read(position, size) + rest
        # The first line of a chunk began before it, but at the very beginning of the log.
        cut = 0 if position == 0 else data.find(b"\n") + 1
        if position > start and cut in (0, len(data)):
            # One endless line: what nobody will see of it is not kept.
            rest = data if len(data) < LONGEST else data[:MAX_CHUNK] + data[-MAX_CHUNK:]
            step = min(2 * step, MAX_CHUNK)
            continue
        lines[:0] = _lines(data[cut:], position + cut, top, match)
        rest, top = data[:cut], position + cut
    whole = match is None and len(lines) > count
    if whole:
        lines = lines[-count:]
        top = lines[0].offset
    if position == start and start > 0 and not whole:
        lines.insert(0, LogLine(floor, top, "", "skipped"))
        top = floor
    return LogBlock(top, end, tuple(lines), first=top == 0, last=at is None or end == sum(parts[-1]))


def after(log: LogBytes, at: int, count: int, match: Matcher | None = None) -> LogBlock:
    """Up to ``count`` lines from ``at`` on, which is the beginning of one; a hole is one line of kind `skipped`."""
    parts = log.parts()
    if not parts:
        return LogBlock(0, 0, (), first=True, last=True)
    last_end = sum(parts[-1])
    start, length = next(((start, length) for start, length in parts if start + length > at), (last_end, 0))
    if start > at:
        lines = (LogLine(at, start, "", "skipped"),)
        return LogBlock(at, start, lines, first=at == 0, last=start >= last_end)
    end = start + length
    lines_found: list[LogLine] = []
    parser = LogLines(at, colours=True)
    position = bottom = at
    while position < end and len(lines_found) < count and (position - at < BUDGET or bottom == at):
        data = log.read(position, min(CHUNK, end - position))
        if not data:
            break
        position += len(data)
        whole = data.rfind(b"\n") + 1
        if match is None or bottom != position - len(data) or not whole or not match.rules_out(data[:whole]):
            lines_found += [line for line in parser.take(data) if match is None or match(line.text)]
        else:
            parser = LogLines(position - len(data) + whole, colours=True)
            parser.take(data[whole:])
        bottom = position - len(data) + whole if whole else bottom
    if len(lines_found) > count and match is None:
        lines_found = lines_found[:count]
        bottom = lines_found[-1].end
    elif position >= end:
        lines_found += [line for line in parser.rest() if match is None or match(line.text)]
        bottom = position
    return LogBlock(at, bottom, tuple(lines_found), first=at == 0, last=bottom >= last_end)


def block_of(log: LogBytes, at: int | None, count: int, match: Matcher | None = None, *, ahead: bool) -> LogBlock:
    """`after` or `before`; a search goes on until it has found a line, or there is nothing more to look at."""
    block = after(log, at or 0, count, match) if ahead else before(log, at, count, match)
    while match is not None and not any(line.kind != "skipped" for line in block.lines):
        if block.last if ahead else block.first:
            break
        if ahead:
            more = after(log, block.end, count, match)
            block = LogBlock(block.start, more.end, (*block.lines, *more.lines), block.first, more.last)
        else:
            more = before(log, block.start, count, match)
            block = LogBlock(more.start, block.end, (*more.lines, *block.lines), more.first, block.last)
    return block


def place_of(log: LogBytes, clock: str) -> int:
    """Where the first line at or after this time begins: "14:02", "14:02:09", or with the day before it.

    A time alone is that of the newest 24 hours. Lines without a time count to the one before them. Raises FindingError
    `time_invalid` and, in a log whose lines carry no time, `time_absent`.
    """
    wanted = seconds_of(clock)
    if wanted is None:
        raise FindingError(error("time_invalid", "This is no time.", expected="14:02:09", actual=clock[:80]))
    parts = log.parts()
    newest = _newest_time(log, sum(parts[-1])) if parts else None
    if newest is None:
        raise FindingError(error("time_absent", "The lines of this log carry no time.", actual=clock[:80]))
    low, high = parts[0][0], sum(parts[-1])
    target = _age(wanted, newest)
    while high - low > CHUNK:
        middle = (low + high) // 2
        found = _first_time(log, middle, high)
        if found is None or _age(found[1], newest) <= target:
            high = middle
        else:
            low = max(found[0], low + 1)
    block = after(log, _line_start(log, low), 4000)
    for line in block.lines:
        time = seconds_of(line.text)
        if time is not None and _age(time, newest) <= target:
            return line.offset
    return block.end


def seconds_of(text: str) -> tuple[float | None, float] | None:
    """(day, second of the day) of the first time in a line; the day is None when only a clock is given."""
    found = _CLOCK.search(text[:_LOOKED_AT])
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) if part else None for part in found.groups())
    if not (hour is not None and minute is not None and hour < 24 and minute < 60):
        return None
    # Days only have to be in order.
    days = None if year is None or month is None or day is None else ((year * 12 + month) * 31 + day) * DAY
    return days, hour * 3600.0 + minute * 60.0 + (second or 0)


def _age(time: tuple[float | None, float], newest: tuple[float | None, float]) -> float:
    """Seconds before the newest line; of a clock alone within the last day."""
    if time[0] is not None and newest[0] is not None:
        return newest[0] + newest[1] - time[0] - time[1]
    return (newest[1] - time[1]) % DAY


def _newest_time(log: LogBytes, end: int) -> tuple[float | None, float] | None:
    times = (seconds_of(line.text) for line in reversed(before(log, end, 500).lines))
    return next((time for time in times if time is not None), None)


def _first_time(log: LogBytes, at: int, limit: int) -> tuple[int, tuple[float | None, float]] | None:
    """The first line with a time that begins behind ``at``: (its beginning, its time)."""
    begin = _line_start(log, at)
    if begin >= limit:
        return None
    for line in after(log, begin, 500).lines:
        time = seconds_of(line.text)
        if time is not None:
            return (line.offset, time) if line.offset < limit else None
    return None


def _line_start(log: LogBytes, at: int) -> int:
    """The beginning of the first line at or behind ``at``."""
    if at == 0:
        return 0
    position = at - 1
    for start, length in log.parts():
        if start + length <= position:
            continue
        position = max(position, start)
        while position < start + length:
            data = log.read(position, CHUNK)
            found = data.find(b"\n")
            if found >= 0:
                return position + found + 1
            position += len(data)
            if not data:
                break
    return position


def _part_before(parts: Sequence[tuple[int, int]], end: int) -> tuple[int, int]:
    """Start of the stretch that ends at or reaches over ``end``, and the end of the one before it."""
    floor = 0
    for start, length in parts:
        if start < end <= start + length:
            return start, floor
        if start >= end:
            break
        floor = start + length
    return end, floor


def _hole(floor: int, end: int) -> LogBlock:
    """What is not stored between two stretches; nothing at the very beginning."""
    lines = (LogLine(floor, end, "", "skipped"),) if end > floor else ()
    return LogBlock(floor if end > floor else end, end, lines, first=end == 0)


def _lines(data: bytes, offset: int, bottom: int, match: Matcher | None) -> list[LogLine]:
    """The lines of these bytes that match; the last one ends at ``bottom`` and may be a half."""
    if match is not None and match.rules_out(data):
        return []
    lines = []
    *ended, rest = data.split(b"\n")
    for raw in ended:
        text = display(raw, colours=True)
        end = offset + len(raw) + 1
        if match is None or match(text):
            lines.append(LogLine(offset, end, text))
        offset = end
    if rest:
        text = display(rest, colours=True, whole=False)
        if text and (match is None or match(text)):
            lines.append(LogLine(offset, bottom, text, "partial"))
    elif lines and lines[-1].end == offset != bottom:
        lines[-1] = lines[-1]._replace(end=bottom)
    return lines
