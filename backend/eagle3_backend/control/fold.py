"""What the lines of a journal add up to: progress, metrics, findings and state of one attempt."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Iterable

from eagle3_backend.control.snapshot import Event
from eagle3_backend.engines import startup
from eagle3_backend.findings import Finding
from eagle3_backend.runs.lines import Line, metric_values
from eagle3_backend.runs.series import Point, downsample

KEPT_COLUMNS = 300
"""Columns to which a series in memory is reduced; the store keeps every point."""


class RunFold:
    """Grows with every line of one attempt, in constant memory. ``stored`` are the points from before, by name.

    ``points`` counts the measurements that came since: the series are unchanged as long as it is.
    """

    def __init__(self, stored: Iterable[tuple[str, Point]] = ()) -> None:
        self.state = ""
        self.done: float | None = None
        self.total: float | None = None
        self.unit = ""
        self.rate: float | None = None
        self.findings: list[Finding] = []
        self.launch: dict[str, float] = {}
        self.points = 0
        self.series: dict[str, list[Point]] = {}
        for name, points in itertools.groupby(stored, operator.itemgetter(0)):
            kept: list[Point] = []
            for _, point in points:
                kept.append(point)
                if len(kept) > 4 * KEPT_COLUMNS:
                    kept = downsample(kept, KEPT_COLUMNS)
            self.series[name] = downsample(kept, KEPT_COLUMNS)

    def add(self, lines: Iterable[Line]) -> None:
        """Take lines in file order."""
        for line in lines:
            if line.kind == "progress":
                self._progress(line)
            elif line.kind == "metric":
                for name, step, value in metric_values(line):
                    self._point(name, (step, value))
            elif line.kind == "state":
                self.state = str(line.data.get("state", ""))
            elif line.kind == "launch":
                self.launch = startup.read(line.data)
            elif line.kind == "finding":
                finding = finding_of(line)
                if finding is not None and finding not in self.findings:
                    self.findings.append(finding)

    @property
    def metrics(self) -> dict[str, float]:
        """The newest value of each series."""
        return {name: points[-1][1] for name, points in self.series.items() if points}

    def _progress(self, line: Line) -> None:
        self.done = _number(line.data.get("done"))
        self.total = _number(line.data.get("total"))
        self.rate = _number(line.data.get("rate"))
        self.unit = str(line.data.get("unit") or "")

    def _point(self, name: str, point: Point) -> None:
        self.points += 1
        points = self.series.setdefault(name, [])
        if not points or points[-1][0] < point[0]:
            points.append(point)
        elif points[-1][0] == point[0]:
            points[-1] = point
        else:
            bisect.insort(points, point, key=lambda entry: entry[0])
        if len(points) > 4 * KEPT_COLUMNS:
            self.series[name] = downsample(points, KEPT_COLUMNS)


def finding_of(line: Line) -> Finding | None:
    """The finding of a journal line; None when it is none that can be read."""
    try:
        return Finding.from_json(line.data)
    except (KeyError, ValueError, TypeError):
        return None


def event_of(line: Line, source: str) -> Event | None:
    """What a line tells the operator, if anything; ``source`` is the stage."""
    if line.kind == "state":
        state = str(line.data.get("state", ""))
        severity = {"failed": "error", "crashed": "error", "stopped": "warning"}.get(state, "info")
        reason = str(line.data.get("reason") or "")
        return Event(line.t, source, f"{state}: {reason}" if reason else state, severity, "state", line.data)
    if line.kind == "finding":
        finding = finding_of(line)
        if finding is not None:
            text = f"{finding.code}: {finding.message}"
            return Event(line.t, source, text, finding.severity.value, "finding", line.data)
    if line.kind == "checkpoint":
        return Event(line.t, source, f"checkpoint at step {line.data.get('step')}", "info", "checkpoint", line.data)
    if line.kind == "artifact":
        text = f"{line.data.get('artifact')} made, {line.data.get('bytes')} bytes"
        return Event(line.t, source, text, "info", "artifact", line.data)
    if line.kind == "accepted":
        codes = ", ".join(map(str, line.data.get("codes") or ()))
        return Event(line.t, source, f"{line.data.get('by')} accepted {codes}", "warning", "accepted", line.data)
    if line.kind == "launch" and (figures := startup.read(line.data)):
        return Event(line.t, source, startup.words(figures), "info", "launch", line.data)
    if line.kind == "note":
        return Event(line.t, source, str(line.data.get("text", "")), "info", "note", line.data)
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
