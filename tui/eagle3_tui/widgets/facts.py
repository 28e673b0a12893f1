"""One stage in words: shared by the pipeline, the details beside it and the stage screen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from eagle3_backend.control.snapshot import StageView
from eagle3_backend.findings import Finding, Severity, shown
from eagle3_backend.states import RunState
from eagle3_tui.benchfigures import SETS
from eagle3_tui.text import clean, clock_span, count, number, shorten, size, span, visible
from eagle3_tui.theme import Look, Piece

STALL_SECONDS = 30.0
"""A heartbeat older than this is told in the warning colour; supervisors beat every few seconds."""


def share(view: StageView) -> float | None:
    """How much of the stage is done, 0 to 1; None while nobody knows."""
    if view.done is None or not view.total:
        return None
    return min(1.0, max(0.0, view.done / view.total))


def at_work(view: StageView) -> bool:
    """True while something of it runs; a queued stage only waits."""
    return view.state.is_active and view.state is not RunState.QUEUED


def result_words(view: StageView) -> tuple[str, str]:
    """What came out of a finished stage, in few words and on a line; empty where nothing is worth a headline.

    The acceptance lengths of bench are those that the engine counted: in-domain first, then published prompts, then
    long documents, for which a headline has no room.
    """
    lengths = view.summary.get("acceptance_length")
    if view.name == "bench" and isinstance(lengths, Mapping):
        found = {name: lengths[name] for name in SETS if isinstance(lengths.get(name), Mapping)}
        short = "/".join(_value("", part.get("mean")) for name, part in found.items() if name != "long_context")
        told = [f"{_value('', part.get('mean'))} {SETS[name]}" for name, part in found.items()]
        speed = view.summary.get("speedup_c1")
        told += [f"speed x{_value('', speed.get('mean'))}"] if isinstance(speed, Mapping) else []
        return f"acc {short}", "acceptance length " + ", ".join(told)
    if view.name == "evaluate" and isinstance(lengths, Mapping) and "mean" in lengths:
        return f"acc {_value('', lengths['mean'])}", f"acceptance length {_interval(lengths)} on the hold-out"
    gains = view.summary.get("gains")
    speed = gains.get("speedup") if isinstance(gains, Mapping) else None
    if view.name == "trace" and isinstance(speed, Mapping):
        return f"x{_value('', speed.get('mean'))}", f"speed-up x{_interval(speed)} by the times of its steps"
    return "", ""


def needs_words(view: StageView, room: int) -> str:
    """ "needs setup, target", or the first of them and how many more when that is too long."""
    names = [clean(name, 32) for name in view.blocked_by]
    words = "needs " + ", ".join(names)
    return words if cell_len(words) <= room or len(names) < 2 else f"needs {names[0]} +{len(names) - 1}"


def progress_words(view: StageView) -> str:
    """ "18300/30000 steps", or what is known of it."""
    if view.done is None:
        return ""
    words = count(view.done) + (f"/{count(view.total)}" if view.total else "")
    return f"{words} {clean(view.unit, 24)}".strip()


def worst_finding(view: StageView) -> Finding | None:
    return max(view.findings, key=lambda finding: finding.severity.rank, default=None)


def reason(view: StageView) -> str:
    """Why a stage is not simply done or running, in few words: its remark, what it waits for, what changed above it."""
    if view.remark:
        return clean(view.remark)
    if view.outdated_by and not view.state.is_active:
        return ", ".join(clean(name, 32) for name in view.outdated_by) + " changed"
    if view.blocked_by:
        return needs_words(view, 200)
    finding = worst_finding(view)
    return clean(finding.code, 60) if finding is not None and finding.severity is Severity.ERROR else ""


def state_words(view: StageView, look: Look, now: float) -> list[Piece]:
    """Glyph and word of a state; with a lost link dimmed and with its age."""
    if view.last_state is not None and view.as_of is not None:
        glyph, _ = look.run(view.last_state)
        return [(f"{glyph} {view.last_state.value}, as of {span(now - view.as_of)} ago", "dim")]
    glyph, role = look.run(view.state)
    pieces: list[Piece] = [(f"{glyph} {view.state.value}", f"{role} bold")]
    if view.state is RunState.DONE and view.outdated_by:
        pieces.append((", out of date", "warn"))
    return pieces


def beat_words(view: StageView) -> tuple[str, str] | None:
    """The heartbeat's age and its role."""
    if view.heartbeat_age is None or not at_work(view):
        return None
    return f"beat {span(view.heartbeat_age)}", "warn" if view.heartbeat_age > STALL_SECONDS else "dim"


def finding_lines(finding: Finding, look: Look, width: int) -> list[Text]:
    """A finding as everywhere: glyph, severity, code and path; expected and actual; message; next step."""
    glyph, role = look.severity(finding.severity)
    path = clean(finding.path, 120) if finding.path else ""
    head = look.remote(f"{glyph} {finding.severity.value} {clean(finding.code, 80)}")
    if cell_len(head) + 2 + cell_len(path) <= width:
        lines = [look.line((head, f"{role} bold"), (f"  {look.remote(path)}" if path else "", "dim"))]
    else:
        lines = wrapped(look, head, width, f"{role} bold") + wrapped(look, path, width, "dim", "  ")
    if finding.expected is not None or finding.actual is not None:
        told = [f"expected {clean(shown(finding.expected), 300)}"] if finding.expected is not None else []
        told += [f"found {clean(shown(finding.actual), 300)}"] if finding.actual is not None else []
        together = ", ".join(told)
        for words in [together] if cell_len(together) + 2 <= width else told:
            lines += wrapped(look, words, width, "text", "  ")
    lines += wrapped(look, clean(finding.message, 2000), width, "text", "  ")
    if finding.fix:
        lines += wrapped(look, f"{look.glyph('to')} {clean(finding.fix, 1000)}", width, "accent", "  ")
    return lines


def wrapped(look: Look, text: str, width: int, role: str = "text", indent: str = "") -> list[Text]:
    """``text`` broken at blanks into lines of at most ``width`` cells; a longer word is broken."""
    room = max(8, width - len(indent))
    lines: list[str] = []
    for word in look.remote(visible(text.replace("\n", " "))).split():
        while cell_len(word) > room:
            piece = shorten(word, room, "")
            lines.append(piece.rstrip())
            word = word[max(1, len(piece.rstrip())) :]
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= room and lines[-1]:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [look.line((indent + line, role)) for line in lines if line]


def summary_pairs(summary: Mapping[str, Any], depth: int = 0) -> list[tuple[str, str]]:
    """A summary as name and value, nested ones indented; a mean with its interval is one value."""
    pairs: list[tuple[str, str]] = []
    for key, value in summary.items():
        name = "  " * depth + clean(key, 60)
        if not isinstance(value, Mapping) or not value:
            pairs.append((name, _value(str(key), value)))
        elif value.keys() >= {"mean", "low", "high"}:
            pairs.append((name, _interval(value)))
        elif depth < 4:
            pairs += [(name, ""), *summary_pairs(value, depth + 1)]
    return pairs


def _interval(value: Mapping[str, Any]) -> str:
    """ "2.31 (2.20 to 2.43)"."""
    mean, low, high = (_value("", value.get(part)) for part in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})" if value.get("low") is not None else mean


def _value(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return "none"
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "-"
    if isinstance(value, int | float):
        return size(value) if name.endswith("bytes") else number(float(value))
    if isinstance(value, list | tuple):
        return clean(", ".join(_value("", one) for one in value[:12]), 200)
    return clean(value, 200)


def pairs_lines(pairs: list[tuple[str, str]], look: Look, width: int) -> list[Text]:
    """Names and values in two columns."""
    left = min(max((cell_len(name) for name, _ in pairs), default=0), max(8, width // 2))
    more = look.glyph("more")
    lines = []
    for name, value in pairs:
        name = look.remote(name)
        shown = shorten(name, left, more)
        room = max(1, width - left - 4)
        lines.append(
            look.line(
                ("  " + shown + " " * (left - cell_len(shown)), "dim"), "  ", shorten(look.remote(value), room, more)
            )
        )
    return lines


def attempt_line(entry: Mapping[str, Any], look: Look, width: int) -> Text:
    """One attempt of a stage: which, how it ended or goes on, how long it took, when it began, and why."""
    try:
        glyph, role = look.run(RunState(str(entry.get("state"))))
    except ValueError:
        glyph, role = look.glyph("dots"), "dim"
    started, ended = entry.get("started"), entry.get("ended")
    began = time.strftime("%m-%d %H:%M", time.localtime(started)) if started else "-"
    took = ended - started if started and ended else entry.get("elapsed")
    name = f"{clean(entry.get('fingerprint'), 8)}/{entry.get('attempt')}"
    pieces: list[Piece] = [f"  {name:<10} ", (f"{glyph} {clean(entry.get('state'), 10):<8}", role)]
    told = f" {span(took):>6} {began}  {clean(entry.get('remark') or '', 200)}".rstrip()
    room = max(1, width - look.line(*pieces).cell_len)
    return look.line(*pieces, (shorten(look.remote(told), room, look.glyph("more")), "dim"))


def artifact_lines(artifact: Mapping[str, Any], look: Look, width: int) -> list[Text]:
    """Where it lies, its size and hash, who made it, and its files with size and hash."""
    made, files = artifact.get("made_by") or {}, artifact.get("files") or ()
    pairs = [
        ("size", size(artifact.get("bytes"))),
        ("fingerprint", clean(artifact.get("fingerprint"), 80)),
        ("made by", f"{clean(made.get('run'), 120)}, attempt {made.get('attempt', '-')}"),
    ]
    # A path is worth nothing when its end is missing.
    lines = [*wrapped(look, clean(artifact.get("path"), 400), width, "text", "  "), *pairs_lines(pairs, look, width)]
    for entry in files:
        told = f"  {size(entry.get('bytes')):>8}  {clean(entry.get('sha256'), 12)[:8]}  {clean(entry.get('path'), 300)}"
        lines.append(look.line((shorten(look.remote(told), width, look.glyph("more")), "dim")))
    more = int(artifact.get("file_count") or 0) - len(files)
    return [*lines, *([look.line((f"  and {more} more files", "dim"))] if more > 0 else [])]


def stage_lines(view: StageView, look: Look, width: int, now: float) -> list[Text]:
    """What is known of a stage: state, progress, why, findings and summary."""
    dot = look.glyph("dot")
    lines = [look.line(*state_words(view, look, now), (f"  {clean(view.title, 60)}", "dim"))]
    facts = [progress_words(view), f"{clock_span(view.elapsed)}" if view.elapsed is not None else ""]
    if at_work(view):
        facts.append(f"{number(view.rate)} {clean(view.unit, 24)}/s" if view.rate else "")
        facts.append(f"eta {span(view.eta)}" if view.eta is not None else "")
    facts.append(f"attempt {view.attempt}" if view.attempt else "")
    beat = beat_words(view)
    if beat:
        facts.append(beat[0])
    told = [fact for fact in facts if fact]
    if told:
        lines += wrapped(look, f" {dot} ".join(told), width, "text")
    if why := reason(view):
        bad = view.state in (RunState.FAILED, RunState.CRASHED, RunState.LOST)
        lines += wrapped(look, why, width, "bad" if bad else "warn" if view.outdated_by else "dim")
    for finding in view.findings[-8:]:
        lines += [Text(""), *finding_lines(finding, look, width)]
    if view.summary:
        lines += [
            Text(""),
            look.line(("Summary", "accent bold")),
            *pairs_lines(summary_pairs(view.summary), look, width),
        ]
    return lines
