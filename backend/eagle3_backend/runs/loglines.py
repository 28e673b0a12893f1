"""Log bytes to the lines a terminal would end up showing: remote text, without escape sequences, bounded."""

from __future__ import annotations

import codecs
import re

MAX_CHARACTERS = 4000
"""Longest line kept for display; the rest is counted and shown as "…+N". The stored bytes are whole."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves, erasing
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two-character sequences
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Text without escape sequences and control characters; tabs become spaces."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text)).expandtabs(8).rstrip()


class LogLines:
    """Splits a stream of bytes into display lines, whatever the chunks are.

    Lines end at a line feed. Of the states that carriage returns draw over one another, the last that shows anything
    counts, as with a progress bar. UTF-8 is decoded incrementally; invalid bytes become replacement characters.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._frame = ""
        self._dropped = 0
        self._shown = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes complete."""
        lines = []
        *whole, rest = self._decoder.decode(data).split("\n")
        for text in whole:
            self._draw(text)
            lines.append(self.partial)
            self._frame, self._dropped, self._shown = "", 0, ""
        self._draw(rest)
        return lines

    @property
    def partial(self) -> str:
        """The line as it stands without its end."""
        return self._state() or self._shown

    def _draw(self, text: str) -> None:
        first, *frames = text.split("\r")
        self._extend(first)
        for frame in frames:
            self._shown = self._state() or self._shown
            self._frame, self._dropped = "", 0
            self._extend(frame)

    def _extend(self, text: str) -> None:
        room = MAX_CHARACTERS - len(self._frame)
        self._frame += text[:room]
        self._dropped += max(0, len(text) - room)

    def _state(self) -> str:
        text = clean(self._frame)
        return f"{text}…+{self._dropped}" if self._dropped else text
