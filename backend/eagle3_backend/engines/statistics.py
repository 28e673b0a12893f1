"""Intervals by bootstrap over prompts: the tokens of one answer are not independent, the prompts are."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Callable, Dict, List, Sequence, Tuple


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval, and how many prompts it rests on."""

    mean: float
    low: float
    high: float
    prompts: int

    def to_json(self) -> Dict[str, float]:
        return {
            "mean": round(self.mean, 4),
            "low": round(self.low, 4),
            "high": round(self.high, 4),
            "prompts": self.prompts,
        }


def bootstrap(
    rows: Sequence[Sequence[float]], statistic: Callable[[Sequence[float]], float], resamples: int, seed: int
) -> Interval:
    """Percentile interval (2.5 % and 97.5 %) of ``statistic``, a function of the column sums of ``rows``.

    One row a prompt; a resample draws whole rows with replacement, so quantities in one row stay paired. Sums rather
    than means of ratios: a long answer weighs what it weighs in the counters. Raises ValueError without rows.
    """
    return nested_bootstrap([[row] for row in rows], statistic, resamples, seed)


def nested_bootstrap(
    groups: Sequence[Sequence[Sequence[float]]],
    statistic: Callable[[Sequence[float]], float],
    resamples: int,
    seed: int,
) -> Interval:
    """As `bootstrap`, for rows that came in groups: a resample draws groups, and in each of them rows.

    Rows of a group share what happened to it (requests of one round share the machine), and a few groups that happen to
    agree must not look like certainty. Raises ValueError without rows.
    """
    filled = [group for group in groups if group]
    if not filled:
        raise ValueError("no rows to resample")
    draw = random.Random(seed)

    def of(chosen: Sequence[Sequence[float]]) -> float:
        return statistic([sum(column) for column in zip(*chosen)])

    found = []
    for _ in range(resamples):
        drawn = draw.choices(filled, k=len(filled))
        rows = [group if len(group) == 1 else draw.choices(group, k=len(group)) for group in drawn]
        found.append(of([row for group in rows for row in group]))
    found.sort()
    edge = int(0.025 * len(found))
    whole = [row for group in filled for row in group]
    return Interval(of(whole), found[edge], found[-1 - edge], len(whole))


def acceptance_interval(rows: Sequence[Tuple[int, int]], resamples: int, seed: int) -> Interval:
    """Acceptance length 1 + accepted / steps from one (accepted, steps) pair a prompt, each with at least one step."""
    return bootstrap(rows, lambda sums: 1.0 + sums[0] / sums[1], resamples, seed)


def share_interval(rows: Sequence[Tuple[int, int]], resamples: int, seed: int) -> Interval:
    """Share of verify steps in which something happened, from one (times, steps) pair a prompt."""
    return bootstrap(rows, lambda sums: sums[0] / sums[1], resamples, seed)


def speed_ratio_interval(rows: Sequence[Tuple[float, float, float, float]], resamples: int, seed: int) -> Interval:
    """Speed with over speed without the drafter, paired by prompt.

    A row is (tokens with, seconds with, tokens without, seconds without); the ratio is that of tokens per second.
    """
    return bootstrap(rows, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]), resamples, seed)


def repeated_share(tokens: Sequence[int], length: int = 4) -> float:
    """Share of an answer's ``length``-grams that repeat an earlier one: 0 for fresh text, near 1 for a loop."""
    grams = [tuple(tokens[start : start + length]) for start in range(len(tokens) - length + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def percentile_intervals(
    groups: Sequence[Sequence[float]], shares: Sequence[float], resamples: int, seed: int
) -> List[Interval]:
    """The percentile at each of ``shares`` (0 to 1, ascending; nearest rank) over all values, with its interval.

    One group a prompt; a resample draws whole groups. Raises ValueError without values. A percentile beyond 1 - 1 / n
    of n values is their largest: few prompts tell no 99th percentile of their first tokens.
    """
    ordered = sorted((value, number) for number, group in enumerate(groups) for value in group)
    if not ordered:
        raise ValueError("no values to resample")
    draw = random.Random(seed)
    numbers = range(len(groups))
    whole = _at_shares(ordered, [1] * len(groups), shares)
    found = []
    for _ in range(resamples):
        times = [0] * len(groups)
        for number in draw.choices(numbers, k=len(groups)):
            times[number] += 1
        if any(times[number] and groups[number] for number in numbers):
            found.append(_at_shares(ordered, times, shares))
    edge = int(0.025 * len(found))
    columns = [sorted(column) for column in zip(*found)]
    prompts = sum(bool(group) for group in groups)
    return [Interval(mean, column[edge], column[-1 - edge], prompts) for mean, column in zip(whole, columns)]


def _at_shares(ordered: Sequence[Tuple[float, int]], times: Sequence[int], shares: Sequence[float]) -> List[float]:
    """The values at these ranks, each value counted as often as its group was drawn."""
    total = sum(times[number] for _, number in ordered)
    found: List[float] = []
    passed = 0
    for value, number in ordered:
        passed += times[number]
        while len(found) < len(shares) and passed >= shares[len(found)] * total and passed:
            found.append(value)
    return found
