"""Journal bytes to journal lines: whole lines only, anything unreadable kept as it is."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

UNPARSED = "unparsed"
"""Kind of a line that is no JSON object; its text stands under ``text``."""


@dataclass(frozen=True)
class Line:
    """One journal line. ``offset`` is the position of its first byte, ``t`` the host's wall time, ``text`` the line."""

    offset: int
    writer: str
    seq: int
    t: float
    kind: str
    text: str
    data: dict[str, Any]


def parse(data: bytes, offset: int) -> list[Line]:
    """The lines of ``data``, which starts at ``offset``. Empty lines say nothing."""
    lines = []
    for raw in data.split(b"\n"):
        if raw.strip():
            lines.append(parse_line(raw.decode("utf-8", "replace"), offset))
        offset += len(raw) + 1
    return lines


def parse_line(text: str, offset: int) -> Line:
    """One line without its line feed."""
    try:
        data = json.loads(text)
        return Line(offset, str(data["w"]), int(data["seq"]), float(data["t"]), str(data["kind"]), text, data)
    except (ValueError, KeyError, TypeError):
        return Line(offset, "", -1, 0.0, UNPARSED, text, {"kind": UNPARSED, "text": text})


def metric_values(line: Line) -> list[tuple[str, float, float]]:
    """(name, step, value) of a metric line. Not-a-number travels as text in JSON and is a gap: NaN."""
    values = line.data.get("values")
    step = _number(line.data.get("step"))
    if line.kind != "metric" or not isinstance(values, dict) or math.isnan(step):
        return []
    return [(str(name), step, _number(value)) for name, value in values.items()]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return math.nan
    return float(value)
