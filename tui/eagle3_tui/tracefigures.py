"""The decode profile as rows, each with what it means: shares of a step, and what speculation can win by them.

Summaries come from manifests of a host: what is missing or of another shape is shown as unknown, never as a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3_backend.engines.traces.gains import at_length
from eagle3_backend.engines.traces.rules import CATEGORIES
from eagle3_tui.benchfigures import SETS, interval, number_of, share_of
from eagle3_tui.drawing import bar
from eagle3_tui.text import UNKNOWN, clean

HIDDEN = "Communication that ran under other work and cost nothing, as a share of the step, beside the 100 %."
WAITING = "What ranks spend in collectives beyond the rank that spends least: waiting for the last one, not transfer."
STEP = (
    "Mean length of a decode step, under the profiler: it slows the host, so gaps are larger than without it. Every "
    "moment of a step is in one of the shares, which sum to 100 %: where streams work at the same time, compute comes "
    "first, then communication, then copies."
)
DRAFT = "The drafter's part of it, its gaps included, as {}."
TOLD = {"annotations": "the engine marks it in the trace", "order": "what computes behind the sampler"}
STEPS = "Steps that were measured, all with the same number of requests; steps with prompts in them are left out."
UNKNOWN_NAMES = "Share of the time in names that no rule knows; it counts as other. Some are listed under other."

GAINS = (
    ("length", "length here", "Tokens a verify step of the few requests that were profiled."),
    ("speedup", "speed-up here", "Length x plain step / drafting step: what this drafter won on these requests."),
    ("break_even_length", "break-even length", "Drafting step / plain step: a shorter acceptance length loses."),
    ("free_drafter", "at most, free drafter", "The same length with a drafter that takes no time."),
    ("perfect_drafter", "at most, all accepted", "All k drafts accepted, and the drafter takes what it takes."),
    ("most", "at most, both", "All k drafts accepted by a drafter that takes no time: nothing beats it at this depth."),
)
SHOWN = 0.0005
"""Least share that is shown: less rounds to 0.0 %."""
FORMULA = " Tokens a step x time of a plain step / time of a drafting step (arXiv:2211.17192, Theorem 3.8), with "
FORMULA += "measured times; in brackets the 95 % interval over steps and requests."
AT_BENCH = "A bench's acceptance length at the same depth with the times measured here. Both intervals are multiplied."


@dataclass(frozen=True)
class Line:
    """One row: with the drafter, without it, and what it means; ``share`` with the drafter is what a bar shows."""

    key: str
    name: str
    drafted: str
    plain: str
    means: str
    share: float | None = None
    role: str = "text"


def lines(summary: Mapping[str, Any], bench: Mapping[str, Any] | None = None) -> list[Line]:
    """Every row of a profile; ``bench`` is the summary of a bench, whose acceptance lengths count at the same depth."""
    return [*_shares(summary), *_steps(summary), *_gains(summary, bench or {})]


def text(summary: Mapping[str, Any], bench: Mapping[str, Any] | None = None) -> str:
    """The rows for a terminal."""
    rows = lines(summary, bench)
    both = bool(summary.get("plain"))
    heads = Line("", "of a decode step", "with drafter" if both else "measured", "without" if both else "", "")
    width = max(len(row.name) for row in rows)
    told = []
    for row in [heads, *rows]:
        chart = "  " + bar(row.share, 24, "#", ".") if row.share is not None else ""
        gap = "" if row.share is not None or row.key != "30 length" else "\n"
        told.append(f"{gap}{row.name:<{width}}  {row.drafted:>22}  {row.plain:>10}{chart}".rstrip())
    missing = [clean(reason, 200) for reason in _list(_map(summary.get("gains")).get("not_measured"))]
    return "\n".join([*told, *(f"not measured: {reason}" for reason in missing)])


def names(summary: Mapping[str, Any], line: Line) -> list[tuple[str, str]]:
    """The kernels or operators behind the share of a category, the longest first, with their part of the step."""
    category = line.name.replace("-", "_")
    found = _map(_map(summary.get("drafted")).get("names"))
    wanted = [_map(found.get(one)) for one in (category, *(("unknown",) if category == "other" else ()))]
    told = [row for rows in wanted for row in rows.items()] if line.share is not None else []
    return [(clean(name, 80), share_of(share, 1)) for name, share in told]


def _shares(summary: Mapping[str, Any]) -> Iterator[Line]:
    drafted, plain = _map(summary.get("drafted")), _map(summary.get("plain"))
    shares, others = _map(drafted.get("shares")), _map(plain.get("shares"))
    for place, (name, holds) in enumerate(CATEGORIES.items()):
        share, other = _share(shares.get(name)), _share(others.get(name))
        if max(share or 0.0, other or 0.0) >= SHOWN:
            words = name.replace("_", "-") if name == "all_reduce" else name
            role = {"drafter": "accent", "gap": "warn", "other": "dim"}.get(name, "text")
            cells = share_of(share, 1), share_of(other, 1) if others else ""
            yield Line(f"10 {place:02d}", words, *cells, f"{holds[0].upper()}{holds[1:]}.", share or 0.0, role)
    for key, name, means in (
        ("hidden_communication", "  hidden communication", HIDDEN),
        ("waiting_for_ranks", "  waiting for ranks", WAITING),
        ("unknown_share", "  unknown names", UNKNOWN_NAMES),
    ):
        if max(_share(part.get(key)) or 0.0 for part in (drafted, plain)) >= SHOWN:
            cells = share_of(drafted.get(key), 1), share_of(plain.get(key), 1) if plain else ""
            yield Line(f"11 {key}", name, *cells, means, None, "dim")


def _steps(summary: Mapping[str, Any]) -> Iterator[Line]:
    drafted, plain = _map(summary.get("drafted")), _map(summary.get("plain"))
    yield Line("20 step", "step, ms", number_of(drafted.get("step_ms")), _told(plain, "step_ms"), STEP)
    drafter = _map(drafted.get("drafter"))
    if drafter:
        told_by = TOLD.get(str(drafter.get("told_by")), UNKNOWN)
        yield Line("21 draft", "  of it drafting", number_of(drafter.get("ms")), "", DRAFT.format(told_by))
        for name in CATEGORIES:
            if share := _share(_map(drafter.get("shares")).get(name)):
                yield Line(
                    f"22 {name}", f"    {name}", share_of(share, 1), "", "Share of the drafter's part.", None, "dim"
                )
    yield Line("23 steps", "steps measured", number_of(drafted.get("steps")), _told(plain, "steps"), STEPS, None, "dim")
    requests = number_of(drafted.get("requests")), _told(plain, "requests")
    yield Line("24 requests", "requests in each", *requests, STEPS, None, "dim")


def _gains(summary: Mapping[str, Any], bench: Mapping[str, Any]) -> Iterator[Line]:
    gains = _map(summary.get("gains"))
    if not gains:
        return
    depth = gains.get("depth")
    for key, name, means in GAINS:
        before = "" if "length" in key else "x"
        role = "accent" if key == "speedup" else "text"
        yield Line(f"30 {key}", name, interval(gains.get(key), before), "", means + FORMULA, None, role)
        if key == "speedup" and _map(bench.get("recipe")).get("depth") == depth:
            for place, length in _map(bench.get("acceptance_length")).items():
                words = f"speed-up, {SETS.get(place, clean(place, 40))}"
                at = at_length(gains, _numbers(length))
                yield Line(f"31 {clean(place, 40)}", words, interval(at, "x"), "", AT_BENCH)


def _told(part: Mapping[str, Any], key: str) -> str:
    return number_of(part.get(key)) if part else ""


def _numbers(value: Any) -> dict[str, float]:
    """An interval whose edges are numbers, or nothing."""
    found = {edge: _map(value).get(edge) for edge in ("mean", "low", "high")}
    known = all(isinstance(one, int | float) and not isinstance(one, bool) for one in found.values())
    return {edge: float(one) for edge, one in found.items() if one is not None} if known else {}


def _share(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
