"""The decode profile as JSON: shares, hidden communication, the drafter's passes, the names behind them, each rank."""

from __future__ import annotations

from statistics import mean
from typing import Any, Dict, List, Optional, Sequence

from eagle3_backend.engines.traces.reduction import Timeline
from eagle3_backend.engines.traces.rules import CATEGORIES, COMMUNICATION
from eagle3_backend.findings import Finding, warning

UNKNOWN = "unknown"
LISTED = 30
"""Names that are listed."""
UNKNOWN_TOLERATED = 0.05
"""Share of the time whose names no rule knows, above which the rules have to grow before the shares say much."""


def profile(ranks: Sequence[Timeline]) -> Dict[str, Any]:
    """What the decode steps of all ``ranks`` spend their time with; figures are means over the ranks."""
    first = ranks[0]
    shares = {name: _digits(mean(rank.shares()[name] for rank in ranks)) for name in CATEGORIES}
    return {
        "measured_on": "device" if first.on_device else "cpu",
        "ranks": len(ranks),
        "requests": first.steps.requests,
        "steps": len(first.steps.chosen),
        "left_out": {"mixed": first.steps.mixed, "other": first.steps.other},
        "step_ms": _digits(mean(first.step_us) / 1000) if first.step_us else None,
        "shares": shares,
        "hidden_communication": _digits(mean(sum(rank.hidden.values()) / (rank.total or 1.0) for rank in ranks)),
        "waiting_for_ranks": _waiting(ranks),
        "drafter": _drafter(ranks),
        "names": _names(ranks),
        "unknown_share": _digits(_unknown(ranks)),
        "by_rank": [_rank(rank) for rank in ranks] if len(ranks) > 1 else [],
    }


def findings_of(ranks: Sequence[Timeline]) -> List[Finding]:
    """What was wrong with the traces, and whether the rules knew their names."""
    found = [finding for rank in ranks for finding in rank.findings]
    share = _unknown(ranks)
    if share > UNKNOWN_TOLERATED:
        names = _unknown_names(ranks)
        found.append(
            warning(
                "kernel_names_unknown",
                f"{100 * share:.0f} % of the time is in names that no rule knows: {names[0][:120]} and "
                f"{len(names) - 1} more. They count as other.",
                path=str(ranks[0].path),
                expected=f"at most {100 * UNKNOWN_TOLERATED:.0f} %",
                actual=round(share, 3),
                fix="Report these names; the longest stand under names.unknown with their share.",
            )
        )
    return found


def _waiting(ranks: Sequence[Timeline]) -> Optional[float]:
    """Share of a step that ranks spend in collectives beyond the rank that spends least: a collective ends when the
    last rank has come, so the others wait in it. None for one rank."""
    if len(ranks) < 2:
        return None
    spent = [
        (sum(time for (_, name), time in rank.spent.items() if name in COMMUNICATION) + sum(rank.hidden.values()))
        / (rank.total or 1.0)
        for rank in ranks
    ]
    return _digits(mean(spent) - min(spent))


def _drafter(ranks: Sequence[Timeline]) -> Optional[Dict[str, Any]]:
    told = [rank for rank in ranks if rank.drafter_told_by]
    if not told:
        return None
    names = [name for name in CATEGORIES if any(name in rank.drafter_shares() for rank in told)]
    return {
        "told_by": told[0].drafter_told_by,
        "ms": _digits(mean(told[0].draft_us) / 1000) if told[0].draft_us else None,
        "shares": {name: _digits(mean(rank.drafter_shares().get(name, 0.0) for rank in told)) for name in names},
    }


def _names(ranks: Sequence[Timeline]) -> Dict[str, Dict[str, float]]:
    """The names with the most time by category, ``unknown`` where no rule knows them, each with its share of the steps;
    of the first rank. Streams that work at once count each for itself, and operators of a CPU by their own time."""
    first = ranks[0]
    rows = sorted(first.names.items(), key=lambda row: -row[1][1])[:LISTED]
    found: Dict[str, Dict[str, float]] = {}
    for name, (category, time, _) in rows:
        if time > 0:
            found.setdefault(category or UNKNOWN, {})[name] = _digits(time / (first.total or 1.0))
    return found


def _unknown_names(ranks: Sequence[Timeline]) -> List[str]:
    """Those that no rule knows, of all ranks, the longest first."""
    time: Dict[str, float] = {}
    for rank in ranks:
        for name, (category, spent, _) in rank.names.items():
            if category is None:
                time[name] = time.get(name, 0.0) + spent
    return sorted(time, key=lambda name: -time[name])


def _unknown(ranks: Sequence[Timeline]) -> float:
    return mean(
        sum(time for category, time, _ in rank.names.values() if category is None) / (rank.total or 1.0)
        for rank in ranks
    )


def _rank(rank: Timeline) -> Dict[str, Any]:
    return {
        "rank": rank.rank,
        "file": rank.path.name,
        "step_ms": _digits(mean(rank.step_us) / 1000) if rank.step_us else None,
        "shares": {name: _digits(share) for name, share in rank.shares().items()},
        "hidden_communication": _digits(sum(rank.hidden.values()) / (rank.total or 1.0)),
    }


def _digits(value: float) -> float:
    return round(value, 5)
