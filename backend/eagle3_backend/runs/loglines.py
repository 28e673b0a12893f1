"""Log bytes to display lines: remote text, without what a terminal would obey, bounded."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

MAX_CHARACTERS = 2000
"""Longest line kept for display; the rest is counted and shown as "…+N". The stored bytes are whole."""

MAX_HALF = 1024 * 1024
"""Bytes kept of a line that has no end yet; more of them are only counted."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves, erasing
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two-character sequences
)
_COLOURS = re.compile(r"(\x1b\[[0-9;:]*m)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BAR = re.compile(r"^\W*(.*?)[:\s]*\d+%\|[^|]*\|\s*([\d.]+)([kMG]?)/([\d.]+)([kMG]?)")
_UNITS = {"": 1, "k": 1000, "M": 1_000_000, "G": 1_000_000_000}


class LogLine(NamedTuple):
    """A line as it is shown. ``offset`` and ``end`` are its bytes in the log, the line feed included.

    ``kind`` is "" for a whole line, `partial` for one without its end, `skipped` for bytes that are not on the laptop.
    """

    offset: int
    end: int
    text: str
    kind: str = ""


class Progress(NamedTuple):
    """What a progress bar says."""

    label: str
    done: float
    total: float


def clean(text: str, colours: bool = False) -> str:
    """Text without escape sequences and control characters, but for colours if asked; tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text.rstrip()
    if not colours:
        return _CONTROLS.sub("", _ESCAPES.sub("", text)).expandtabs(8).rstrip()
    bare = _COLOURS.sub("", text)
    if bare.isascii() and bare.isprintable():
        return text.rstrip()
    # Colour sequences stand at the odd places.
    pieces = _COLOURS.split(text)
    pieces[::2] = [_CONTROLS.sub("", _ESCAPES.sub("", piece)).expandtabs(8) for piece in pieces[::2]]
    return "".join(pieces).rstrip()


def display(raw: bytes, colours: bool = False, *, whole: bool = True, dropped: int = 0) -> str:
    """One line of bytes as it is shown; of states drawn over one another the last that shows anything.

    ``whole`` is False for a line whose last character may still be incomplete, ``dropped`` counts bytes left out.
    """
    if b"\r" in raw:
        raw = last_state(raw)
    text = codecs.utf_8_decode(raw, "replace", whole)[0]
    more = max(0, len(text) - MAX_CHARACTERS) + dropped
    shown = clean(text[:MAX_CHARACTERS] if more else text, colours)
    return f"{shown}…+{more}" if more else shown


def last_state(raw: bytes) -> bytes:
    """Of the states that carriage returns draw over one another, the last that shows anything."""
    states = raw.split(b"\r")
    for state in reversed(states):
        if clean(state[: 4 * MAX_CHARACTERS].decode("utf-8", "replace")):
            return state
    return states[-1]


def progress_of(text: str) -> Progress | None:
    """The progress of a line that is a bar, as tqdm draws it; None for any other line."""
    found = _BAR.match(text[:400])
    if found is None:
        return None
    label, done, done_unit, total, total_unit = found.groups()
    try:
        return Progress(label.strip(), float(done) * _UNITS[done_unit], float(total) * _UNITS[total_unit])
    except ValueError:
        return None


class LogLines:
    """Splits a stream of bytes into display lines, whatever the chunks are.

    Lines end at a line feed. Of the states that carriage returns draw over one another, the last that shows anything
    counts, as with a progress bar. UTF-8 is decoded incrementally; invalid bytes become replacement characters.
    """

    def __init__(self, offset: int = 0, colours: bool = False) -> None:
        """``offset`` is where the stream begins in its log; ``colours`` keeps colour sequences in the text."""
        self._start = offset
        self._end = offset
        self._colours = colours
        self._half = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> list[str]:
        """The text of the lines that these bytes complete."""
        return [line.text for line in self.take(data)]

    def take(self, data: bytes) -> list[LogLine]:
        """The lines that these bytes complete."""
        lines = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            if self._half or self._dropped or len(piece) > MAX_HALF:
                self._extend(piece)
                text = display(bytes(self._half), self._colours, dropped=self._dropped)
                self._half.clear()
                self._dropped = 0
            else:
                self._end += len(piece)
                text = display(piece, self._colours)
            self._end += 1
            lines.append(LogLine(self._start, self._end, text))
            self._start = self._end
        self._extend(rest)
        return lines

    @property
    def partial(self) -> str:
        """The line as it stands without its end."""
        return display(bytes(self._half), self._colours, whole=False, dropped=self._dropped)

    def rest(self) -> list[LogLine]:
        """The line without its end, if there is anything of it to see."""
        text = self.partial
        return [LogLine(self._start, self._end, text, "partial")] if text else []

    def _extend(self, piece: bytes) -> None:
        self._end += len(piece)
        if self._dropped and b"\r" in piece:
            # A state that was too long is drawn over.
            self._half, self._dropped = bytearray(_without_drawn_over(bytes(self._half))), 0
        room = MAX_HALF - len(self._half)
        if self._dropped or len(piece) > room:
            if b"\r" in piece or b"\r" in self._half:
                self._half = bytearray(_without_drawn_over(bytes(self._half) + piece))
                piece, room = b"", MAX_HALF
            self._dropped += max(0, len(piece) - room)
        self._half += piece[:room]


def _without_drawn_over(raw: bytes) -> bytes:
    """The same line for the eye: the last state that shows anything, and what is drawn over it right now."""
    state, newest = last_state(raw), raw.rpartition(b"\r")[2]
    return state if state == newest else state + b"\r" + newest
