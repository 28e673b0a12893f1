"""A log as a reader gets it: bytes in any pieces to lines of text, in bounded memory.

Lines end at a line feed or a carriage return, so that every state of a progress bar is a line. What is not UTF-8
becomes replacement characters; zero bytes go, which makes UTF-16 logs of plain text readable too.
"""

from __future__ import annotations

import re
from typing import Iterator, List

MAX_LINE = 64 * 1024
"""Bytes of a line that are looked at; the rest of a longer one is passed over."""

MAX_SEARCHED = 4096
"""Characters of a line that patterns with several open ends are matched against."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")


class LineReader:
    """Cuts a stream of bytes into lines without escape sequences; empty ones are left out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> List[str]:
        """The lines that these bytes complete. A character cut in two waits for its other half with its line."""
        *whole, rest = (self._rest + data.replace(b"\0", b"").replace(b"\r", b"\n")).split(b"\n")
        self._rest = rest[:MAX_LINE]
        return list(_texts(whole))

    def close(self) -> List[str]:
        """The line without an end that a log stops with, if there is one."""
        rest, self._rest = self._rest, b""
        return list(_texts([rest]))


class LineFed:
    """A reader that takes lines by ``feed``, and so bytes in any pieces by `feed_bytes` and `close`."""

    def __init__(self) -> None:
        self._reader = LineReader()

    def feed(self, line: str) -> object:
        raise NotImplementedError

    def feed_bytes(self, data: bytes) -> object:
        for line in self._reader.feed(data):
            self.feed(line)
        return None

    def close(self) -> None:
        """The log has ended: its last line counts though it has no end."""
        for line in self._reader.close():
            self.feed(line)


def _texts(lines: List[bytes]) -> Iterator[str]:
    for line in lines:
        text = _CONTROLS.sub("", _ESCAPES.sub("", line[:MAX_LINE].decode("utf-8", "replace"))).rstrip()
        if text.strip():
            yield text


class Mask:
    """Takes a secret out of a stream of bytes, wherever the pieces are cut: a beginning of it waits for what follows.

    SGLang logs all its arguments at its start, the API key among them.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode("utf-8")
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown of this piece and of what was held back."""
        data = (self._rest + data).replace(self._secret, b"***")
        longest = min(len(self._secret) - 1, len(data))
        held = next((size for size in range(longest, 0, -1) if data.endswith(self._secret[:size])), 0)
        self._rest = data[len(data) - held :]
        return data[: len(data) - held]

    def close(self) -> bytes:
        """The stream has ended: what was held back was not the secret."""
        rest, self._rest = self._rest, b""
        return rest
