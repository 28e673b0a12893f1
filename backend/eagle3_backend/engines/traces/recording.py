"""What a trace has recorded, kept as arrays: events on devices, operators on threads, and what the engine marked."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from eagle3_backend.engines.traces.reading import TraceFile
from eagle3_backend.engines.traces.rules import Pass, category_of, pass_of
from eagle3_backend.findings import Finding, warning

MOST_EVENTS = 3_000_000
"""Events kept of one trace: some 100 MB in memory."""
LONGEST_NAME = 400
LATEST = 1e17
"""Microseconds that a time may have: 3,000 years. What is beyond it, or no number, is no event."""

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_KEEPING = ("attention", "moe", "all_reduce", "communication")
"""Operators whose inner operators are theirs: a softmax in attention is no sampling."""

Place = Tuple[str, str]
"""A device, or a process and its thread."""


class Track:
    """Events of one device or thread: begin and end in microseconds, and the number of the name."""

    def __init__(self) -> None:
        self.begin = array("d")
        self.end = array("d")
        self.name = array("l")

    def __len__(self) -> int:
        return len(self.begin)

    def add(self, begin: float, end: float, name: int) -> None:
        self.begin.append(begin)
        self.end.append(end)
        self.name.append(name)

    def rows(self, order: Iterator[int]) -> Iterator[Tuple[float, float, int]]:
        return ((self.begin[place], self.end[place], self.name[place]) for place in order)

    def by_begin(self) -> Iterator[Tuple[float, float, int]]:
        """The events in the order in which they began, the longer one first of two that began together."""
        return self.rows(iter(sorted(range(len(self)), key=lambda place: (self.begin[place], -self.end[place]))))


@dataclass(frozen=True)
class Mark:
    """A part of the work that the engine named, in microseconds."""

    begin: float
    end: float
    part: Pass


@dataclass
class Recording:
    """One trace: ``tracks`` by place, ``marks`` by place, ``names`` by number. ``on_device`` tells whether devices
    were recorded; else the tracks are operators of threads, nested in each other. Times are microseconds."""

    path: Path
    names: List[str] = field(default_factory=list)
    tracks: Dict[Place, Track] = field(default_factory=dict)
    marks: Dict[Place, List[Mark]] = field(default_factory=dict)
    on_device: bool = False
    rank: Any = None
    events: int = 0
    findings: List[Finding] = field(default_factory=list)


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._numbers: Dict[str, int] = {}
        self._thread_marks: Dict[Place, List[Mark]] = {}
        self.made = Recording(path)

    def take(self, event: Mapping[str, Any]) -> None:
        kind, name = event.get("cat"), event.get("name")
        begin, length = event.get("ts"), event.get("dur")
        if event.get("ph") != "X" or not isinstance(kind, str) or not isinstance(name, str):
            return
        if not isinstance(begin, (int, float)) or not isinstance(length, (int, float)):
            return
        if not abs(begin) < LATEST or not 0 <= length < LATEST:
            return
        thread = (str(event.get("pid")), str(event.get("tid")))
        if kind in _DEVICE:
            if not self.made.on_device:
                self.made.on_device = True
                self.made.tracks.clear()
            self._add((thread[0], ""), begin, length, name)
        elif kind == "cpu_op" and not self.made.on_device:
            self._add(thread, begin, length, name)
        elif kind in ("user_annotation", "gpu_user_annotation") and (part := pass_of(name)):
            of_device = kind == "gpu_user_annotation"
            marks = self.made.marks if of_device else self._thread_marks
            marks.setdefault((thread[0], "") if of_device else thread, []).append(Mark(begin, begin + length, part))

    def _add(self, place: Place, begin: float, length: float, name: str) -> None:
        number = self._numbers.setdefault(name[:LONGEST_NAME], len(self._numbers))
        self.made.tracks.setdefault(place, Track()).add(begin, begin + length, number)
        self.made.events += 1

    def end(self, file: TraceFile) -> Recording:
        made = self.made
        made.names = list(self._numbers)
        if not made.on_device:
            made.marks = self._thread_marks
        spread = file.header.get("distributedInfo")
        made.rank = spread.get("rank") if isinstance(spread, dict) else None
        made.findings += file.findings
        return made


def record(path: Path) -> Recording:
    """Read one trace. Raises FindingError `trace_unreadable`, `trace_malformed`."""
    file = TraceFile(path)
    recorder = _Recorder(path)
    for event in file.events():
        recorder.take(event)
        if recorder.made.events >= MOST_EVENTS:
            recorder.made.findings.append(_too_long(path))
            break
    return recorder.end(file)


def own_time(track: Track, names: List[str]) -> Iterator[Tuple[float, float, int]]:
    """The nested operators of a thread as pieces that do not overlap, in order: each moment belongs to the innermost.

    What no rule knows belongs to the operator that called it, and so does all that attention or a collective calls.
    """
    stack: List[Tuple[float, int]] = []
    at = 0.0
    for begin, end, name in track.by_begin():
        while stack and stack[-1][0] <= begin:
            yield from _piece(at, stack[-1])
            at = max(at, stack.pop()[0])
        if stack:
            yield from _piece(at, (begin, stack[-1][1]))
            outer = stack[-1][1]
            end = min(end, stack[-1][0])
            known = category_of(names[name])
            if category_of(names[outer]) in _KEEPING or known in (None, "other"):
                name = outer
        at = begin
        stack.append((end, name))
    while stack:
        yield from _piece(at, stack[-1])
        at = max(at, stack.pop()[0])


def _piece(begin: float, top: Tuple[float, int]) -> Iterator[Tuple[float, float, int]]:
    if top[0] > begin:
        yield begin, top[0], top[1]


def _too_long(path: Path) -> Finding:
    return warning(
        "trace_too_long",
        f"{path.name} has more than {MOST_EVENTS} events; the first of them are used.",
        path=str(path),
        expected=f"at most {MOST_EVENTS} events",
        fix="Profile fewer steps: some tens tell the shares.",
    )
