"""Words and numbers for the screen: remote text made harmless, durations, bytes and rates in few cells."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

from rich.cells import cell_len, set_cell_size

LINE_LIMIT = 2000
"""Longest line that is looked at, characters; a longer one is cut before anything else is done with it."""

UNKNOWN = "-"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI, colours too
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC up to their end
    r"|\x1b[ -/]*[0-~]?"
)
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
# What moves the cursor, reorders the line or has no width of its own would shift what stands beside it.
_INVISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    0x09: "    ",
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0)),
    **dict.fromkeys([0xAD, 0x061C, 0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB, 0x2028, 0x2029]),
    **dict.fromkeys(range(0x200B, 0x2010)),
    **dict.fromkeys(range(0x202A, 0x202F)),
    **dict.fromkeys(range(0x2060, 0x2070)),
    **dict.fromkeys(range(0xFE00, 0xFE10)),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


def cut(text: str, limit: int = LINE_LIMIT) -> str:
    """``text``, or its first ``limit`` characters and how many more there are."""
    # A little longer is a line that control has cut and that says so itself.
    return text if len(text) <= limit + 20 else f"{text[:limit]}…+{len(text) - limit}"


def last_frame(line: str) -> str:
    """What a terminal would show of a line that overwrote itself with carriage returns."""
    if "\r" not in line:
        return line
    return line.rstrip("\r").rpartition("\r")[2]


def visible(text: str) -> str:
    """``text`` on one line without escape sequences; control characters shown, reordering and zero-width ones gone."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text) if "\x1b" in text else text
    text = text.translate(_INVISIBLE)
    if text.isascii():
        return text
    return _bounded_marks(text)


def _bounded_marks(text: str) -> str:
    """At most two combining marks on a character: a stack of hundreds is no word of any language."""
    kept, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= 2:
            kept.append(character)
    return "".join(kept)


def clean(value: Any, limit: int = 400) -> str:
    """Remote text for one place on the screen: cut, on one line, nothing that a terminal would obey."""
    text = value if isinstance(value, str) else str(value)
    return visible(cut(text, limit).replace("\n", " ").replace("\r", " "))


def without_colours(line: str) -> str:
    """``line`` without what `split_colours` takes apart."""
    return _COLOURS.sub("", line) if "\x1b" in line else line


def split_colours(line: str) -> list[tuple[str, str]]:
    """``line`` as (SGR parameters in force, text) pairs; every other escape sequence is dropped by `visible` later."""
    parts: list[tuple[str, str]] = []
    at, codes = 0, ""
    for found in _COLOURS.finditer(line):
        if found.start() > at:
            parts.append((codes, line[at : found.start()]))
        at, codes = found.end(), found.group()[2:-1]
    if at < len(line):
        parts.append((codes, line[at:]))
    return parts


def fit(text: str, width: int, more: str = "…") -> str:
    """``text`` in exactly ``width`` cells, cut with ``more`` or filled with blanks."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, max(0, width - cell_len(more))) + more, width)


def shorten(text: str, width: int, more: str = "…") -> str:
    """``text`` in at most ``width`` cells."""
    return text if cell_len(text) <= width else fit(text, width, more)


def clock_span(seconds: float | None) -> str:
    """A duration as hh:mm:ss."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def span(seconds: float | None) -> str:
    """A duration in its two largest units: 41s, 12m30s, 1h42m, 3d4h."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, round(seconds))
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}{rest}{small_unit}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def number(value: float | None) -> str:
    """A number in about four figures: 0.00031, 1.842, 97.5, 18300, 41.2k, 3.1M."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    size = abs(value)
    for limit, divisor, unit in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (2e4, 1e3, "k")):
        if size >= limit:
            return f"{value / divisor:.1f}{unit}"
    if float(value).is_integer() and size < 2e4:
        return str(int(value))
    if size >= 1000:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.1:
        return f"{value:.3f}".rstrip("0") if size < 2 else f"{value:.2f}"
    return f"{value:.1e}" if size else "0"


def count(value: float | None) -> str:
    """A whole number as it is, up to seven digits."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if math.isfinite(value) and abs(value) < 1e7 else number(value)


def size(value: float | None) -> str:
    """Bytes in decimal units, as disks are sold and findings count: 512 B, 8.8 MB, 71 GB."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(amount) < 1000 or unit == "PB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 20 else f"{amount:.1f} {unit}"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.0f}%"
