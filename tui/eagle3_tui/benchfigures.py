"""The figures of benches and of the diagnosis as rows, each with what it means. Nothing here knows a screen.

Summaries come from manifests of a host: what is missing or of another shape is shown as unknown, never as a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from eagle3_tui.text import UNKNOWN, clean, number

LENGTH = (
    "Acceptance length: tokens a verify step, with the target's own token. Measured: 1 + accepted / drafts, from the "
    "engine's counters over all prompts of the set, in brackets the 95 % interval over prompts; 1.00 means that no "
    "draft was accepted. Estimated, at depths that were not measured: 1 + the sum of acceptance by position up to it."
)
POSITIONS = (
    "Share of all drafts whose token at position 1, 2, ... was accepted. A position counts only when all before it "
    "were accepted, so the shares fall, and their sum is the acceptance length less 1."
)
SPEED = (
    "Tokens a second of one request at a time with the drafter, over those without it, paired by prompt, prefill "
    "included, at the depth of the recipe. In brackets the 95 % interval over prompts; one that includes 1.0 proves no "
    "gain."
)
SPEED_AT = (
    "Estimated: acceptance length x cost of a plain step / cost of a verify step. Every draft token is taken to cost "
    "the same as at the measured depth. One request at a time."
)
LOSSLESS = (
    "Prompts whose greedy answer is the same, token by token, with the drafter and without it. Compared in float32 "
    "only: in shorter types rounding depends on the batch."
)
LOOPS = "Share of answers in which more than half of the 4-grams repeat: any drafter predicts those, so they flatter."
SHARED = "Share of the set's texts that have a 13-gram in common with the training text: a high one flatters."
RECIPE = "What has to be equal before two benches may be compared."

VERDICT = "Whether the engine runs the drafter that was trained: bench's requests, replayed step by step in torch."
EQUAL = "Share of the engine's verify steps that the replay predicts exactly; 99.9 % clears the engine."
STEPS = "Verify steps that were replayed."
BY_SOURCE = "Acceptance length over the prompts of one kind or file, from what the answers tell, with its interval."
RAW = (
    "Acceptance length of the same prompts asked as raw text, without the chat template: a drafter of chats has to be "
    "worse there, or it learned no chats. Loops are left out, since any drafter predicts those."
)
CONTROL = "A drafter with a known mistake has to look wrong in the same replay; else the verdict proves nothing."

COMPARED = ("depth", "depths", "layout", "drafter", "against", "concurrencies")
"""What of a recipe may differ: it is what one compares, or adds figures without changing any."""

SETS = {"in_domain": "in domain", "published": "published", "long_context": "long context"}


@dataclass(frozen=True)
class Figure:
    """One row: the figure's name, its value in each bench, what it means, and whether the benches differ in it."""

    key: str
    name: str
    values: tuple[str, ...]
    means: str
    role: str = "text"
    differs: bool = False


@dataclass(frozen=True)
class Bench:
    """A bench's summary, its diagnosis where there is one, and what to call it."""

    title: str
    summary: Mapping[str, Any]
    diagnosis: Mapping[str, Any] | None = None


def figures(benches: Sequence[Bench]) -> list[Figure]:
    """Every figure that any of the benches has, in the order in which one asks for them."""
    told = [dict(_rows(bench)) for bench in benches]
    names = sorted(dict.fromkeys(key for rows in told for key in rows), key=lambda key: key.partition(" ")[0])
    made = []
    for key in names:
        cells = [rows.get(key) for rows in told]
        name, _, means, role = next(cell for cell in cells if cell is not None)
        values = tuple(cell[1] if cell is not None else UNKNOWN for cell in cells)
        meanings = [cell[2] if cell is not None else UNKNOWN for cell in cells]
        if len({*meanings} - {UNKNOWN}) > 1:
            means = " ".join(f"{letter}: {words}" for letter, words in zip("AB", meanings, strict=False))
        differs = key.startswith("5") and len(set(values)) > 1
        made.append(Figure(key, name, values, means, "warn" if differs else role, differs))
    return made


def not_comparable(benches: Sequence[Bench]) -> list[str]:
    """What the recipes of two benches differ in, but for what one compares; what only one of them tells is not known to
    differ."""
    if len(benches) < 2:
        return []
    left, right = (_map(bench.summary.get("recipe")) for bench in benches[:2])
    both = [name for name in left if name in right and name not in COMPARED]
    return [clean(name, 40) for name in both if left[name] != right[name]]


_Cell = tuple[str, str, str, str]
"""Name, value, meaning, role."""


def _rows(bench: Bench) -> Iterator[tuple[str, _Cell]]:
    """The rows of one bench; the first letter of a key orders them."""
    summary = bench.summary
    recommended = summary.get("recommended_depth")
    because = clean(summary.get("recommended_because") or "no reason is told", 400)
    judged = clean(SETS.get(str(summary.get("recommended_for")), summary.get("recommended_for") or ""), 40)
    words = UNKNOWN if recommended is None else "0: without it" if recommended == 0 else number_of(recommended)
    means = f"The depth to serve with, judged on {judged or 'the first set'}: {because}."
    yield "00 recommended", ("recommended depth", words, means, "accent")
    yield "01 speed", ("speed-up, one request", interval(summary.get("speedup_c1"), "x"), SPEED, "text")
    equal, total = summary.get("lossless_equal"), summary.get("lossless_total")
    lossless = "not compared" if not total else f"{number_of(equal)} of {number_of(total)} equal"
    yield "02 lossless", ("lossless", lossless, LOSSLESS, "text" if not total or equal == total else "bad")
    for entry in map(_map, _list(summary.get("recommended_by_concurrency"))):
        load, depth = number_of(entry.get("concurrency")), entry.get("depth")
        words = "off" if depth == 0 else number_of(depth)
        means = f"Measured, {load} in flight: {clean(entry.get('because') or 'no reason is told', 300)}."
        yield f"00b {load}", (f"  depth with {load} in flight", words, means, "text")
    for name, entry in _map(summary.get("controls")).items():
        title, outcome, role = figures_of_control(name, entry)
        yield f"03 {clean(name, 60)}", (title, outcome, RAW if name == "raw_text" else CONTROL, role)
    yield from _lengths(summary)
    if bench.diagnosis is not None:
        yield from _diagnosis(bench.diagnosis)
    if engine := engine_of(summary):
        yield "5 engine", ("recipe: engine", engine, RECIPE, "text")
    for name, value in _map(summary.get("recipe")).items():
        yield (
            f"5 {clean(name, 60)}",
            (f"recipe: {clean(name, 60).replace('_', ' ')}", clean(value, 200), RECIPE, "text"),
        )


def _lengths(summary: Mapping[str, Any]) -> Iterator[tuple[str, _Cell]]:
    """Acceptance and speed of every prompt set, by depth."""
    rows = summary.get("by_depth")
    depths = {
        row["depth"]: row for row in (rows if isinstance(rows, list) else ()) if _is_depth(_map(row).get("depth"))
    }
    measured = _map(summary.get("recipe")).get("depth")
    for place, (name, part) in enumerate(_map(summary.get("acceptance_length")).items()):
        # By set, so that the same one of two benches stands on one line.
        told, order = clean(SETS.get(name, name), 40), f"1{[*SETS].index(name) if name in SETS else len(SETS) + place}"
        for depth in sorted({*depths, *([measured] if _is_depth(measured) else [])} - {0}):
            row = _map(depths.get(depth))
            length = number_of(_map(row.get("acceptance_length")).get(name)) + " estimated"
            value = interval(part) if depth == measured else length
            yield f"{order}0{depth:03d} {told}", (f"length, depth {depth}, {told}", value, LENGTH, "text")
            speed = number_of(_map(row.get("speedup_c1")).get(name))
            if speed != UNKNOWN:
                value = f"x{speed} estimated"
                yield f"{order}4{depth:03d} {told}", (f"  speed-up, depth {depth}", value, SPEED_AT, "dim")
        part = _map(part)
        if isinstance(part.get("by_position"), list):
            yield f"{order}1 {told}", ("  accepted by position", by_position(part) or UNKNOWN, POSITIONS, "text")
        sources = _map(part.get("by_source"))
        for source, figure in sources.items() if len(sources) > 1 else ():
            source = clean(source, 40)
            yield f"{order}1s {told} {source}", (f"  length, {source}", interval(figure), BY_SOURCE, "dim")
        if "looping_answers" in part:
            yield f"{order}2 {told}", ("  answers that loop", share_of(part["looping_answers"]), LOOPS, "dim")
        for kind, overlap in _map(part.get("overlap_13gram")).items():
            shared = share_of(_map(overlap).get("share_of_texts"))
            kind = clean(kind, 40)
            yield f"{order}3 {told} {kind}", (f"  {kind} seen in training", shared, SHARED, "dim")


def _diagnosis(found: Mapping[str, Any]) -> Iterator[tuple[str, _Cell]]:
    verdict = clean(found.get("verdict") or UNKNOWN, 80)
    good = verdict == "engine_runs_the_drafter"
    yield "30 verdict", ("diagnosis", verdict.replace("_", " "), VERDICT, "good" if good else "bad")
    yield "31 share", ("  steps predicted", share_of(found.get("equal_share"), 2), EQUAL, "text")
    yield "32 steps", ("  steps replayed", number_of(found.get("steps")), STEPS, "text")
    for name, entry in _map(found.get("controls")).items():
        failed = _map(entry).get("failed_as_it_must")
        words = "fails, as it must" if failed is True else "did not fail" if failed is False else UNKNOWN
        role = "text" if failed is True else "bad"
        yield f"33 {clean(name, 60)}", (f"  control {clean(name, 60).replace('_', ' ')}", words, CONTROL, role)


def figures_of_control(name: Any, entry: Any) -> tuple[str, str, str]:
    """Name, outcome and role of a control in a bench: figures that have to look wrong."""
    told = _map(entry)
    failed = told.get("failed_as_it_must")
    words = "worse" if failed is True else "no worse" if failed is False else "too few to tell"
    lengths = f"{number_of(told.get('raw'))} beside {number_of(told.get('chat'))}: {words}"
    role = "text" if failed is True else "bad" if failed is False else "dim"
    return f"control {clean(name, 60).replace('_', ' ')}", lengths, role


def interval(value: Any, before: str = "") -> str:
    """ "2.31 (2.20 to 2.43)"; of one prompt no interval, which would claim to be certain."""
    told = _map(value)
    if told.get("mean") is None:
        return "not measured"
    words = before + number_of(told["mean"])
    low, high = told.get("low"), told.get("high")
    unknown = low is None or high is None or told.get("prompts") == 1
    return words if unknown else f"{words} ({number_of(low)} to {number_of(high)})"


def by_position(length: Mapping[str, Any]) -> str:
    """The share that is accepted at each position, with its interval where there is one."""
    shares = [number_of(share) for share in _list(length.get("by_position"))[:16]]
    told = [_edges(each) for each in _list(length.get("by_position_intervals"))[: len(shares)]]
    return " ".join(share + words for share, words in zip_longest(shares, told, fillvalue=""))


def _edges(value: Any) -> str:
    edges = [number_of(each) for each in _list(value)]
    return f" ({edges[0]} to {edges[1]})" if len(edges) == 2 else ""


def engine_of(summary: Mapping[str, Any]) -> str:
    """The engine and its version; empty where it is not told."""
    engine = _map(summary.get("engine"))
    return f"{clean(engine.get('name'), 40)} {clean(engine.get('version'), 40)}" if engine else ""


def number_of(value: Any) -> str:
    """A number in words; anything else is unknown."""
    known = real(value)
    if known is None:
        return UNKNOWN
    return f"{known:.2f}" if isinstance(value, float) and 0.005 <= abs(known) < 10 else number(known)


def share_of(value: Any, digits: int = 0) -> str:
    known = real(value)
    return UNKNOWN if known is None else f"{100 * known:.{digits}f} %"


def real(value: Any) -> float | None:
    """A number as a float; None for anything else, and for a whole number that is too large to be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _is_depth(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
