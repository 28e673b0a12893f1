"""Bars, sparklines and braille curves as plain characters; cost grows with the width drawn, spikes survive."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence

Point = tuple[float, float]

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-:=+*#"
# Dot bits of U+2800, by column and by row from the top; plain ASCII has three rows.
_SIDES = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_PLAIN_SIDE = (1, 2, 4)
_BRAILLE_TABLE = " " + "".join(map(chr, range(0x2801, 0x2900)))
_ASCII_TABLE = " '-'.|.|"


def bar(share: float | None, width: int, full: str = "█", empty: str = "░") -> str:
    """A bar of ``width`` cells filled to ``share`` (0 to 1, clamped); unknown is an empty bar."""
    known = share if share is not None and math.isfinite(share) else 0.0
    filled = round(min(1.0, max(0.0, known)) * width)
    return full * filled + empty * (width - filled)


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def spark(
    values: Sequence[float], width: int, ascii_only: bool = False, limits: tuple[float, float] | None = None
) -> str:
    """The values as at most ``width`` blocks, the last of each bucket; NaN and infinity are blanks.

    ``limits`` are the values of the lowest and the highest block; without them they are those of the values.
    """
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    picked = [values[(index + 1) * len(values) // count - 1] for index in range(count)]
    known = finite(picked)
    if not known:
        return " " * count
    low, high = limits or (min(known), max(known))
    top = len(blocks) - 1
    scale = _scale(top, low, high)
    levels = (min(top, max(0, _steps(value, low, scale))) if math.isfinite(value) else -1 for value in picked)
    return "".join(blocks[level] if level >= 0 else " " for level in levels)


def _scale(steps: int, low: float, high: float) -> float:
    """Steps for each unit between two values; 0 where they are one, or so near or so far that a float has no more."""
    scale = steps / (high - low) if high > low else 0.0
    return scale if math.isfinite(scale) else 0.0


def _steps(value: float, low: float, scale: float) -> int:
    return round((value - low) * scale) if scale else 0


def columns_of(points: Sequence[Point], columns: int) -> list[tuple[float, float] | None]:
    """Lowest and highest value of the curve in each of ``columns`` equal stretches of x; None where it has a gap.

    Between two neighbouring points the curve is the straight line; a point that is not finite breaks it.
    """
    if not points or columns < 1:
        return [None] * columns
    # This runs for every point of every curve that is drawn: plain loops over plain numbers.
    low, high = [math.inf] * columns, [-math.inf] * columns
    first, last = points[0][0], points[-1][0]
    scale = (columns - 1) / (last - first) if last > first else 0.0
    before, level = -1, 0.0
    for x, y in points:
        if y - y != 0.0:  # neither NaN nor an infinity is a place
            before = -1
            continue
        column = min(columns - 1, max(0, int((x - first) * scale + 0.5)))
        if y < low[column]:
            low[column] = y
        if y > high[column]:
            high[column] = y
        if 0 <= before < column:
            # Each column between takes the line up to its half way to the next.
            half = (y - level) / (column - before) / 2
            here = level + half
            for between in range(before, column):
                if here < low[between]:
                    low[between] = here
                if here > high[between]:
                    high[between] = here
                if here < low[between + 1]:
                    low[between + 1] = here
                if here > high[between + 1]:
                    high[between + 1] = here
                here += 2 * half
        before, level = column, y
    return [(low[at], high[at]) if low[at] <= high[at] else None for at in range(columns)]


def bounds(points: Sequence[Point]) -> tuple[float, float] | None:
    """Lowest and highest finite value, or None."""
    known = [y for _, y in points if y - y == 0.0]  # faster than a call for each of them
    return (min(known), max(known)) if known else None


def curve(
    points: Sequence[Point],
    width: int,
    height: int,
    ascii_only: bool = False,
    limits: tuple[float, float] | None = None,
) -> list[str]:
    """The curve through ``points`` (ascending x) as ``height`` rows of ``width`` braille characters.

    ``limits`` are the `bounds` of the points, for whoever has them already.
    """
    limits = limits or bounds(points)
    if limits is None or width < 1 or height < 1:
        return [" " * max(0, width)] * max(0, height)
    across, down = (1, 3) if ascii_only else (2, 4)
    low, high = limits
    last = height * down - 1
    scale = _scale(last, low, high)
    offset = 0 if scale else (height * down) // 2
    grid = [bytearray(width) for _ in range(height)]
    sides = (_PLAIN_SIDE,) if ascii_only else _SIDES
    for x, span in enumerate(columns_of(points, width * across)):
        if span is not None:
            bottom = last - offset - _steps(max(low, span[0]), low, scale)
            top = last - offset - _steps(min(high, span[1]), low, scale)
            _stroke(grid, x // across, top, bottom, sides[x % across])
    table = _ASCII_TABLE if ascii_only else _BRAILLE_TABLE
    # A string serves as a table, and as the fastest one, whatever the stubs say.
    return [codecs.charmap_decode(bytes(row), "strict", table)[0] for row in grid]  # type: ignore[arg-type]


def _stroke(grid: list[bytearray], cell: int, top: int, bottom: int, bits: tuple[int, ...]) -> None:
    """A vertical line of dots from ``top`` to ``bottom``, counted from the top; ``bits`` are those of a cell's side."""
    down = len(bits)
    first, last = top // down, bottom // down
    if top == bottom:
        grid[first][cell] |= bits[top % down]
        return
    above, below = sum(bits[top % down :]), sum(bits[: bottom % down + 1])
    if first == last:
        grid[first][cell] |= above & below
        return
    grid[first][cell] |= above
    grid[last][cell] |= below
    for row in range(first + 1, last):
        grid[row][cell] |= sum(bits)
