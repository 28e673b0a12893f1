"""The ratio of two trainers' acceptance lengths over the same prompts and seeds, with its interval. No torch here."""

from __future__ import annotations

import random
from collections.abc import Sequence

from eagle3_backend.engines.statistics import Interval

Table = Sequence[Sequence[tuple[int, int]]]
"""Verify steps and accepted drafts, [seeds][prompts]."""


def length(table: Table) -> float:
    """Acceptance length over all prompts of all seeds: 1 + accepted drafts / verify steps."""
    steps, accepted = _sums(table, range(len(table)), range(len(table[0])))
    return 1.0 + accepted / steps


def paired_ratio(ours: Table, peer: Table, resamples: int, seed: int) -> Interval:
    """Ours over the peer's acceptance length with its 95 % percentile interval.

    A resample draws seeds and prompts with replacement, the same ones for both: an easy prompt is easy for each of
    them, and seed s gives both the same first weights. All drawn prompts stand under every drawn seed. Raises
    ValueError where the tables are empty or not of one shape.
    """
    shapes = {len(row) for row in (*ours, *peer)}
    if len(ours) != len(peer) or len(shapes) != 1 or 0 in shapes:
        raise ValueError("two tables of the same seeds and prompts are wanted")
    draw = random.Random(seed)
    seeds, prompts = range(len(ours)), range(len(ours[0]))

    def ratio(chosen_seeds: Sequence[int], chosen_prompts: Sequence[int]) -> float:
        mine, theirs = (_sums(table, chosen_seeds, chosen_prompts) for table in (ours, peer))
        return (1.0 + mine[1] / mine[0]) / (1.0 + theirs[1] / theirs[0])

    found = sorted(
        ratio(draw.choices(seeds, k=len(seeds)), draw.choices(prompts, k=len(prompts))) for _ in range(resamples)
    )
    edge = int(0.025 * len(found))
    return Interval(ratio(seeds, prompts), found[edge], found[-1 - edge], len(prompts))


def _sums(table: Table, seeds: Sequence[int], prompts: Sequence[int]) -> tuple[int, int]:
    rows = [table[seed][prompt] for seed in seeds for prompt in prompts]
    return sum(steps for steps, _ in rows), sum(accepted for _, accepted in rows)
