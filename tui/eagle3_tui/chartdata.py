"""Series for the big chart: what belongs on one chart, smoothing, gaps, time instead of steps, and files of it."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from eagle3_backend.runs.series import downsample
from eagle3_tui.drawing import Point, bounds
from eagle3_tui.text import number

SMOOTHINGS = (0.0, 0.6, 0.9, 0.97)
"""Weights of the past in an exponential mean, as experiment trackers have them."""

_MEMBER = re.compile(r"^(.*[^\d_/])[_/](\d+)$")


@dataclass(frozen=True)
class Family:
    """Series that belong on one chart: one of a name, or all TTT steps or positions of it."""

    title: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Drawn:
    """One curve of the chart: what the legend calls it, and its points in ascending x."""

    label: str
    points: tuple[Point, ...]


def families(names: Sequence[str]) -> list[Family]:
    """The charts that these series make; ``train/loss_0``, ``train/loss_1`` are one, beside ``train/loss``."""
    grouped: dict[str, list[str]] = {}
    for name in names:
        found = _MEMBER.match(name)
        grouped.setdefault(f"{found.group(1)} by {kind_of(found.group(1))}" if found else name, []).append(name)
    return [
        Family(title, tuple(sorted(members, key=_number_of)))
        if len(members) > 1
        else Family(members[0], tuple(members))
        for title, members in grouped.items()
    ]


def kind_of(name: str) -> str:
    """What the numbers behind this name count."""
    return "GPU" if name.startswith("gpu") else "position" if name.startswith("accept") else "step"


def _number_of(name: str) -> tuple[str, int]:
    found = _MEMBER.match(name)
    return (found.group(1), int(found.group(2))) if found else (name, 0)


def smoothed(points: Sequence[Point], weight: float) -> tuple[Point, ...]:
    """An exponential mean that begins without a bias towards zero (as in Adam); gaps stay gaps."""
    if not weight:
        return tuple(points)
    mean, power, made = 0.0, 1.0, []
    for x, y in points:
        if math.isfinite(y):
            mean = weight * mean + (1 - weight) * y
            power *= weight
            y = mean / (1 - power)
        made.append((x, y))
    return tuple(made)


def stretches(points: Sequence[Point], columns: int, *, log: bool = False) -> list[list[Point]]:
    """The curve in pieces between its gaps, at most two points a column, with spikes kept.

    On a logarithmic axis what is not positive is a gap, too.
    """
    pieces: list[list[Point]] = [[]]
    for x, y in downsample(points, max(1, columns)):
        if math.isfinite(y) and not (log and y <= 0):
            pieces[-1].append((x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def within(points: Sequence[Point], low: float, high: float) -> tuple[Point, ...]:
    """The points of a stretch of x, and one neighbour on each side so that lines run on to the edge."""
    first = bisect_left(points, low, key=lambda point: point[0])
    last = bisect_left(points, high, key=lambda point: point[0])
    return tuple(points[max(0, first - 1) : last + 1])


def value_at(points: Sequence[Point], x: float) -> Point | None:
    """The point nearest to ``x``."""
    if not points:
        return None
    at = bisect_left(points, x, key=lambda point: point[0])
    near = points[max(0, at - 1) : at + 1]
    return min(near, key=lambda point: abs(point[0] - x))


def by_time(points: Sequence[Point], clock: Sequence[Point]) -> tuple[Point, ...]:
    """Steps replaced by seconds since the first entry of ``clock``, which holds (step, wall seconds) in step order."""
    if not clock:
        return ()
    began = clock[0][1]
    return tuple((_time_of(step, clock) - began, value) for step, value in points if step >= clock[0][0])


def _time_of(step: float, clock: Sequence[Point]) -> float:
    at = bisect_left(clock, step, key=lambda entry: entry[0])
    if at >= len(clock):
        return clock[-1][1]
    (later, then), (before, earlier) = clock[at], clock[max(0, at - 1)]
    return then if later == before else earlier + (then - earlier) * (step - before) / (later - before)


def csv_of(curves: Sequence[Drawn], x_name: str) -> str:
    """Every point as a row ``x,series,value``; a gap has no value."""
    rows = [f"{x_name},series,value"]
    for curve in curves:
        label = '"' + curve.label.replace('"', '""') + '"'
        rows += [f"{x!r},{label},{y!r}" if math.isfinite(y) else f"{x!r},{label}," for x, y in curve.points]
    return "\n".join(rows) + "\n"


def svg_of(
    title: str, curves: Sequence[Drawn], x_name: str, colours: Sequence[str], palette: Mapping[str, str], log: bool
) -> str:
    """The chart as a picture of 960x540; ``palette`` has background, text, dim and line."""
    left, top, width, height = 70, 50, 860, 420
    pieces = {curve.label: stretches(curve.points, width // 2, log=log) for curve in curves}
    shown = [(x, math.log10(y) if log else y) for parts in pieces.values() for part in parts for x, y in part]
    low, high = bounds(shown) or (0.0, 1.0)
    first, last = min((x for x, _ in shown), default=0.0), max((x for x, _ in shown), default=1.0)
    across, down = width / ((last - first) or 1.0), height / ((high - low) or 1.0)

    def place(x: float, y: float) -> str:
        return f"{left + (x - first) * across:.1f},{top + height - ((math.log10(y) if log else y) - low) * down:.1f}"

    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 540" font-family="monospace" font-size="13">',
        f'<rect width="960" height="540" fill="{palette["background"]}"/>',
        f'<text x="{left}" y="28" font-size="17" fill="{palette["text"]}">{escape(title)}</text>',
        f'<path d="M{left},{top} V{top + height} H{left + width}" fill="none" stroke="{palette["line"]}"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        y = top + height - share * height
        lines.append(_text(left - 8, y + 4, number(10**value if log else value), palette["dim"], "end"))
        x = left + share * width
        lines.append(_text(x, top + height + 20, number(first + share * (last - first)), palette["dim"], "middle"))
    lines.append(_text(left + width, top + height + 40, x_name, palette["dim"], "end"))
    for index, curve in enumerate(curves):
        colour = colours[index % len(colours)]
        for part in pieces[curve.label]:
            points = " ".join(place(x, y) for x, y in part)
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        lines.append(_text(left + width, top + 14 + 16 * index, curve.label, colour, "end"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'
