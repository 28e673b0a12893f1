"""Speeds of a bench by load: each way to draft beside the target alone, as rows, as text and as Markdown.

Summaries come from manifests of a host: what is missing or of another shape is shown as unknown, never as a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3_tui.benchfigures import SETS, by_position, figures_of_control, interval, number_of, real
from eagle3_tui.chartdata import Drawn
from eagle3_tui.drawing import bar
from eagle3_tui.text import UNKNOWN, clean

HEADS = ("load", "drafting", "speed-up", "tok/s", "first ms", "gap ms", "length")
MEANS = {
    "load": "requests in flight: rounds of so many, asked at once; in brackets how many were in flight on average",
    "drafting": "who proposes tokens, and how many a step; none is the target alone, served what a running server was "
    "started with",
    "speed-up": "tokens a second of a request over those of the same prompt without drafting, prefill and waiting "
    "included, both servers in turn; in brackets the 95 % interval over rounds and prompts: one that includes 1 proves "
    "nothing",
    "tok/s": "tokens a second of the whole server",
    "first ms": "time to the first token, median and 99th percentile over prompts (of n prompts, never finer than 1/n)",
    "gap ms": "time between two arrivals of the stream, median and 99th percentile; with drafting an arrival brings "
    "several tokens, so compare the time a token",
    "length": "acceptance length over the steps that had a draft, with its interval over prompts; n-gram drafts in few "
    "steps only",
}
BAR_CELLS = 12


@dataclass(frozen=True)
class LoadRow:
    """One way with ``load`` requests in flight; ``cells`` are the words under `HEADS`, ``more`` what has no column."""

    key: str
    load: float | None
    cells: tuple[str, ...]
    more: tuple[tuple[str, str], ...]
    speed: float | None
    rate: float | None
    role: str


def load_rows(summary: Mapping[str, Any]) -> list[LoadRow]:
    """Every cell of a bench's summary, as it was measured."""
    return [_row(place, _map(entry)) for place, entry in enumerate(_list(summary.get("cells")))]


def _row(place: int, entry: Mapping[str, Any]) -> LoadRow:
    way, speed = clean(entry.get("way") or UNKNOWN, 60), _map(entry.get("speedup"))
    alone = way == "none"
    low, high, mean = (_number(speed.get(name)) for name in ("low", "high", "mean"))
    role = "text"
    if low is not None and high is not None:
        role = "good" if low > 1 else "bad" if high < 1 else "dim"
    length = _map(entry.get("acceptance_length"))
    cells = (
        f"{number_of(entry.get('concurrency'))} ({number_of(entry.get('in_flight'))})",
        way if alone else f"{way}, depth {number_of(entry.get('depth'))}",
        "1" if alone else interval(entry.get("speedup"), "x"),
        number_of(entry.get("tokens_per_second")),
        _percentiles(entry.get("first_token_ms")),
        _percentiles(entry.get("gap_ms")),
        "" if alone else interval(length),
    )
    more = [
        ("prompts", number_of(entry.get("prompts"))),
        ("rounds", number_of(entry.get("rounds"))),
        ("tokens a second of a request", interval(entry.get("tokens_per_second_each"))),
        ("ms a token after the first", interval(entry.get("token_ms"))),
    ]
    for name, title in (("first_token_ms", "first token"), ("gap_ms", "gap")):
        for share, value in _map(entry.get(name)).items():
            more.append((f"{title}, {clean(share, 8)}, ms", interval(value)))
    if not alone:
        more.append(("verify steps", number_of(length.get("steps"))))
        shares = length.get("by_position")
        if isinstance(shares, list):
            more.append(("accepted by position", by_position(length)))
        more.append(("rounds left out: other traffic", number_of(entry.get("rounds_left_out"))))
        if entry.get("directory"):
            more.append(("directory", clean(entry["directory"], 300)))
    rate = _number(entry.get("tokens_per_second"))
    return LoadRow(
        f"{place} {way}", _number(entry.get("concurrency")), cells, tuple(more), 1.0 if alone else mean, rate, role
    )


def verdicts(summary: Mapping[str, Any]) -> list[str]:
    """What follows from the speeds, a sentence each: the depth at each load, whether a drafter is needed at all, what
    was lost, and over how many starts it was measured."""
    found = []
    for entry in map(_map, _list(summary.get("recommended_by_concurrency"))):
        depth, load = entry.get("depth"), number_of(entry.get("concurrency"))
        words = "off" if depth == 0 else f"depth {number_of(depth)}"
        found.append(f"{load} in flight: {words}; {clean(entry.get('because') or 'no reason is told', 300)}")
    found += [
        f"A drafter of your own? {clean(entry.get('words') or UNKNOWN, 500)}"
        for entry in map(_map, _list(summary.get("drafter_needed")))
    ]
    for entry in map(_map, _list(summary.get("ways_lost"))):
        kept = number_of(entry.get("loads_kept"))
        way = f"{clean(entry.get('way') or UNKNOWN, 60)}, depth {number_of(entry.get('depth'))}"
        found.append(f"lost: {way} after {kept} loads: {clean(entry.get('why') or UNKNOWN, 300)}")
    found += [
        f"{number_of(entry.get('concurrency'))} in flight: speeds and waiting times were shared with other traffic"
        for entry in map(_map, _list(summary.get("cells")))
        if entry.get("shared") is True
    ]
    over = _map(summary.get("measured_over"))
    if (_number(over.get("starts")) or 0) > 1:
        taken = f"{number_of(over.get('taken_up'))} of {number_of(over.get('answers'))} answers"
        found.append(
            f"Measured over {number_of(over.get('starts'))} starts: {taken} were there when the last began; both "
            "halves of each pair are of one start."
        )
    return found


def bars(rows: Sequence[LoadRow], full: str = "#", empty: str = ".", *, by_rate: bool = False) -> list[str]:
    """A bar of each row's speed-up, all on one scale; of its tokens a second, where nothing was measured beside, or
    ``by_rate``."""
    values = [row.speed for row in rows] if beside_none(rows) and not by_rate else [row.rate for row in rows]
    most = max((value for value in values if value is not None), default=1.0) or 1.0
    return [bar(value / most if value is not None else None, BAR_CELLS, full, empty) for value in values]


def beside_none(rows: Sequence[LoadRow]) -> bool:
    """Whether the rows are of a bench with the target alone beside; a running server has no such half."""
    return any(row.speed is not None for row in rows)


def curves(summary: Mapping[str, Any]) -> list[Drawn]:
    """Speed-up over requests in flight, a curve for each way and depth; the target alone is the line at 1."""
    found: dict[str, list[tuple[float, float]]] = {}
    for entry in map(_map, _list(summary.get("cells"))):
        load, speed = _number(entry.get("concurrency")), _number(_map(entry.get("speedup")).get("mean"))
        way = clean(entry.get("way") or UNKNOWN, 60)
        label, speed = ("none", 1.0) if way == "none" else (f"{way}, depth {number_of(entry.get('depth'))}", speed)
        if load is not None and speed is not None:
            found.setdefault(label, []).append((load, speed))
    return [Drawn(label, tuple(sorted(points))) for label, points in found.items()]


def as_text(summary: Mapping[str, Any]) -> str:
    """The table with its bars, and what follows from it; empty where nothing was timed."""
    rows = load_rows(summary)
    if not rows:
        return ""
    table = _columns(rows, [(*HEADS, ""), *((*row.cells, drawn) for row, drawn in zip(rows, bars(rows), strict=True))])
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([*lines, *verdicts(summary)])


def as_markdown(summary: Mapping[str, Any], title: str = "Bench") -> str:
    """The whole report: speeds, acceptance of each prompt set, controls, and the recipe that they belong to."""
    parts = [f"# {_cell(title)}"]
    rows = load_rows(summary)
    if rows:
        table = [(*HEADS, ""), *((*row.cells, drawn) for row, drawn in zip(rows, bars(rows), strict=True))]
        heads, *lines = _columns(rows, table)
        parts += ["## Speed", _table(heads, lines), "\n".join(f"- {_cell(line)}" for line in verdicts(summary))]
        parts.append("\n".join(f"- *{name}*: {words}." for name, words in MEANS.items() if name in heads))
        parts += _accepted(summary, rows)
    lengths = []
    for name, part in _map(summary.get("acceptance_length")).items():
        told = _map(part)
        entries = [(SETS.get(name, name), told), *_map(told.get("by_source")).items()]
        lengths += [
            (("" if place == 0 else "- ") + clean(words, 60), interval(one), *_counts(one))
            for place, (words, one) in enumerate(entries)
        ]
    if lengths:
        parts += ["## Acceptance length", _table(("prompts", "length", "number", "verify steps"), lengths)]
    controls = [figures_of_control(name, entry)[:2] for name, entry in _map(summary.get("controls")).items()]
    total = summary.get("lossless_total")
    lossless = "not compared" if not total else f"{number_of(summary.get('lossless_equal'))} of {number_of(total)}"
    parts += [
        "## Checks",
        _table(("check", "outcome"), [("same greedy text as without drafting", lossless), *controls]),
    ]
    recipe = [(clean(name, 60).replace("_", " "), clean(value, 300)) for name, value in _recipe(summary).items()]
    parts += ["## Recipe", _table(("what has to be equal", ""), recipe)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _accepted(summary: Mapping[str, Any], rows: Sequence[LoadRow]) -> list[str]:
    """Acceptance at each load, as a section."""
    lines = []
    for row, entry in zip(rows, map(_map, _list(summary.get("cells"))), strict=True):
        length = _map(entry.get("acceptance_length"))
        told = (interval(length), number_of(length.get("steps")), by_position(length))
        lines += [(number_of(entry.get("concurrency")), row.cells[1], *told)] if length else []
    heads = ("load", "drafting", "length", "verify steps", "accepted by position")
    return ["## Acceptance at each load", _table(heads, lines)] if lines else []


def _columns(rows: Sequence[LoadRow], table: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The table without the speed-up, where there is none."""
    if beside_none(rows):
        return list(table)
    at = HEADS.index("speed-up")
    return [(*line[:at], *line[at + 1 :]) for line in table]


def _recipe(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {"engine build": _map(summary.get("engine")).get("version"), **_map(summary.get("recipe"))}


def _counts(value: Any) -> tuple[str, str]:
    return number_of(_map(value).get("prompts")), number_of(_map(value).get("steps"))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(word) for word in line) + " |" for line in lines)


def _cell(words: str) -> str:
    """Text of a host as a cell: it ends no cell, and is no markup."""
    for mark in "\\`|<>[]*_":
        words = words.replace(mark, f"\\{mark}")
    return words.replace("\n", " ")


def _percentiles(value: Any) -> str:
    told = _map(value)
    if not told:
        return UNKNOWN
    return " / ".join(_whole(_map(told.get(name)).get("mean")) for name in ("p50", "p99"))


def _whole(value: Any) -> str:
    known = _number(value)
    return UNKNOWN if known is None else f"{known:.0f}" if known >= 10 else f"{known:.1f}"


def _number(value: Any) -> float | None:
    known = real(value)
    return known if known is not None and math.isfinite(known) else None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
