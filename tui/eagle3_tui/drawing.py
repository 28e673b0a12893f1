"""Bars, sparklines and braille curves as plain characters; cost grows with the width drawn, spikes survive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Point = tuple[float, float]

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-:=+*#"
# Dot bits of U+2800, by column and by row from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def bar(share: float | None, width: int, full: str = "█", empty: str = "░") -> str:
    """A bar of ``width`` cells filled to ``share`` (0 to 1, clamped); unknown is an empty bar."""
    known = share if share is not None and math.isfinite(share) else 0.0
    filled = round(min(1.0, max(0.0, known)) * width)
    return full * filled + empty * (width - filled)


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def spark(values: Sequence[float], width: int, ascii_only: bool = False) -> str:
    """The values as at most ``width`` blocks, the last of each bucket; NaN and infinity are blanks."""
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    picked = [values[(index + 1) * len(values) // count - 1] for index in range(count)]
    known = finite(picked)
    if not known:
        return " " * count
    low, high = min(known), max(known)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((value - low) * scale)] if math.isfinite(value) else " " for value in picked)


def columns_of(points: Sequence[Point], columns: int) -> list[tuple[float, float] | None]:
    """Lowest and highest value of the curve in each of ``columns`` equal stretches of x; None where it has a gap.

    Between two neighbouring points the curve is the straight line; a point that is not finite breaks it.
    """
    spans: list[tuple[float, float] | None] = [None] * columns
    if not points or columns < 1:
        return spans
    first, last = points[0][0], points[-1][0]
    scale = (columns - 1) / (last - first) if last > first else 0.0
    before: tuple[int, float] | None = None
    for x, y in points:
        if not math.isfinite(y):
            before = None
            continue
        column = min(columns - 1, max(0, round((x - first) * scale)))
        _widen(spans, column, y)
        if before is not None and column > before[0]:
            _join(spans, before, (column, y))
        before = (column, y)
    return spans


def _widen(spans: list[tuple[float, float] | None], column: int, y: float) -> None:
    span = spans[column]
    spans[column] = (y, y) if span is None else (min(span[0], y), max(span[1], y))


def _join(spans: list[tuple[float, float] | None], start: tuple[int, float], end: tuple[int, float]) -> None:
    """Draw the line from ``start`` to ``end`` into the columns between, each up to its half way to the next."""
    slope = (end[1] - start[1]) / (end[0] - start[0])
    for column in range(start[0], end[0] + 1):
        here = start[1] + slope * (column - start[0])
        if column > start[0]:
            _widen(spans, column, here - slope / 2)
        if column < end[0]:
            _widen(spans, column, here + slope / 2)


def bounds(points: Sequence[Point]) -> tuple[float, float] | None:
    """Lowest and highest finite value, or None."""
    known = [y for _, y in points if math.isfinite(y)]
    return (min(known), max(known)) if known else None


def curve(points: Sequence[Point], width: int, height: int, ascii_only: bool = False) -> list[str]:
    """The curve through ``points`` (ascending x) as ``height`` rows of ``width`` braille characters."""
    limits = bounds(points)
    if limits is None or width < 1 or height < 1:
        return [" " * max(0, width)] * max(0, height)
    across, down = (1, 3) if ascii_only else (2, 4)
    low, high = limits
    scale = (height * down - 1) / (high - low) if high > low else 0.0
    offset = 0 if high > low else (height * down) // 2
    grid = [[0] * width for _ in range(height)]
    for x, span in enumerate(columns_of(points, width * across)):
        if span is None:
            continue
        bottom = round((max(low, span[0]) - low) * scale) + offset
        top = round((min(high, span[1]) - low) * scale) + offset
        for dot in range(bottom, top + 1):
            row, part = divmod(height * down - 1 - dot, down)
            grid[row][x // across] |= 1 << part if ascii_only else _DOTS[x % 2][part]
    if ascii_only:
        return ["".join(_ascii_dot(cell) for cell in row) for row in grid]
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in grid]


def _ascii_dot(bits: int) -> str:
    """Three dots in one cell: high, middle, low."""
    return {0: " ", 1: "'", 2: "-", 4: ".", 3: "'", 6: "."}.get(bits, "|")
