"""Series for charts: attempts joined, and reduced to what a chart of a given width can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]


def join_attempts(attempts: Sequence[Sequence[Point]]) -> list[Point]:
    """One series from those of consecutive attempts: a later one replaces what lies at and behind its first step."""
    joined: list[Point] = []
    for points in attempts:
        if points:
            first = points[0][0]
            joined = [point for point in joined if point[0] < first] + list(points)
    return joined


def downsample(points: Sequence[Point], columns: int) -> list[Point]:
    """At most two points a column, its least and its greatest value in step order, so that spikes survive.

    ``points`` are in step order. A column that holds values but no number becomes one NaN point: a gap.
    """
    if columns <= 0 or len(points) <= 2 * columns:
        return list(points)
    first, last = points[0][0], points[-1][0]
    width = (last - first) / columns or 1.0
    buckets: list[list[Point]] = [[] for _ in range(columns)]
    for point in points:
        buckets[min(int((point[0] - first) / width), columns - 1)].append(point)
    return [point for bucket in buckets for point in _extremes(bucket)]


def _extremes(bucket: list[Point]) -> list[Point]:
    numbers = [point for point in bucket if math.isfinite(point[1])]
    if not numbers:
        return [(bucket[0][0], math.nan)] if bucket else []
    low = min(numbers, key=lambda point: point[1])
    high = max(numbers, key=lambda point: point[1])
    return sorted({low, high})
