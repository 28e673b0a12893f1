"""Reading a Chrome trace, plain or gzip, one event at a time: traces of hundreds of megabytes are never held whole."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any, Dict, Iterator, List, Union

from eagle3_backend.findings import Finding, FindingError, error, warning

CHUNK = 1 << 20
"""Bytes read at once."""
LARGEST_VALUE = 16 << 20
"""Characters that one event or one field of the header may have."""

_BLANK = " \t\r\n"
_File = Union[gzip.GzipFile, BufferedReader]


class TraceFile:
    """One trace on disk. `events` yields its events; afterwards ``header`` holds the other top-level fields that are
    small, and ``findings`` what was wrong with the file.

    Where a file ends too early, or is damaged further on, what came before is given and a finding says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: Dict[str, Any] = {}
        self.findings: List[Finding] = []

    def events(self) -> Iterator[Dict[str, Any]]:
        """Every event, in the order of the file. Raises FindingError `trace_unreadable`, `trace_malformed`."""
        try:
            with self._open() as file:
                yield from self._events(_Text(file))
        except OSError as problem:
            raise FindingError(_unreadable(self.path, str(problem))) from problem

    def _open(self) -> _File:
        with open(self.path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return gzip.GzipFile(self.path) if packed else open(self.path, "rb")

    def _events(self, text: _Text) -> Iterator[Dict[str, Any]]:
        first = text.peek()
        if first == "[":
            text.skip()
            if text.peek() not in ("{", "]", ""):
                raise FindingError(_malformed(self.path, f"its list begins with {text.peek()!r}"))
            yield from self._list(text)
            return
        if first != "{":
            raise FindingError(_malformed(self.path, f"it begins with {first!r}"))
        found = False
        text.skip()
        while text.peek() not in ("}", ""):
            name = text.value()
            if not isinstance(name, str) or text.peek() != ":":
                break
            text.skip()
            if name == "traceEvents" and text.peek() == "[":
                found = True
                text.skip()
                yield from self._list(text)
            else:
                self._keep(name, text.value())
            if text.peek() == ",":
                text.skip()
        if not found:
            raise FindingError(_malformed(self.path, "it has no list 'traceEvents'"))
        if text.peek() != "}":
            self._cut(text)

    def _list(self, text: _Text) -> Iterator[Dict[str, Any]]:
        """The events of a list, from behind its bracket."""
        while (mark := text.peek()) != "]":
            value = text.value() if mark == "{" else _NOTHING
            if not isinstance(value, dict):
                self._cut(text)
                return
            yield value
            if text.peek() == ",":
                text.skip()
        text.skip()

    def _keep(self, name: str, value: Any) -> None:
        if value is not _NOTHING and len(self.header) < 64:
            self.header[name] = value

    def _cut(self, text: _Text) -> None:
        if not any(finding.code == "trace_truncated" for finding in self.findings):
            self.findings.append(
                warning(
                    "trace_truncated",
                    f"{self.path.name} is cut off or damaged after {text.position} characters; what stands before is "
                    "used.",
                    path=str(self.path),
                    fix="Profile again: a trace is whole once the engine has answered the request to stop.",
                )
            )


_NOTHING = object()
"""Where a value should stand and none does."""


class _Text:
    """A stream of characters with JSON values in it."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Names of kernels may hold control characters, which the profiler does not escape.
        self._parse = json.JSONDecoder(strict=False).raw_decode
        self._buffer = ""
        self._at = 0
        self._read = 0
        self.ended = False

    @property
    def position(self) -> int:
        return self._read - len(self._buffer) + self._at

    def peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._buffer):
                if self._buffer[self._at] not in _BLANK:
                    return self._buffer[self._at]
                self._at += 1
            if not self._more():
                return ""

    def skip(self) -> None:
        self._at += 1

    def value(self) -> Any:
        """The JSON value that begins here, or `_NOTHING`."""
        self.peek()
        while True:
            try:
                value, end = self._parse(self._buffer, self._at)
            except (ValueError, RecursionError):
                value, end = _NOTHING, len(self._buffer)
            # A number may go on in the next chunk.
            if value is not _NOTHING and (end < len(self._buffer) or self.ended):
                self._at = end
                return value
            if len(self._buffer) - self._at > LARGEST_VALUE or not self._more():
                if value is not _NOTHING:
                    self._at = end
                return value

    def _more(self) -> bool:
        if self.ended:
            return False
        text = self._decoder.decode(self._block(), final=self.ended)
        self._read += len(text)
        self._buffer = self._buffer[self._at :] + text
        self._at = 0
        return bool(text) or not self.ended

    def _block(self) -> bytes:
        """The next bytes; of a packed file that breaks off, all that could be unpacked."""
        block = b""
        try:
            while len(block) < CHUNK:
                piece = self._file.read1(CHUNK - len(block))
                if not piece:
                    self.ended = True
                    break
                block += piece
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.ended = True
        return block


def _unreadable(path: Path, why: str) -> Finding:
    return error(
        "trace_unreadable", f"The trace cannot be read: {why}.", path=str(path), fix="Name a file that is there."
    )


def _malformed(path: Path, why: str) -> Finding:
    return error(
        "trace_malformed",
        f"{path.name} is no Chrome trace: {why}.",
        path=str(path),
        expected='a list of events, or an object with "traceEvents"',
        fix="Give the .json or .json.gz file that the torch profiler wrote.",
    )
