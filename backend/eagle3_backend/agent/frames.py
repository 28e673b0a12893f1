"""The gateway's frames: one JSON object a line, in both directions."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Dict, List, Optional

from eagle3_backend.findings import Finding, FindingError, error

PROTOCOL = 1

MAX_FRAME = 1 << 20
"""Longest frame, bytes, its newline included."""


class Splitter:
    """Cuts a byte stream into lines and never holds more than one frame."""

    def __init__(self) -> None:
        self._rest = b""
        self._dropping = False

    def feed(self, data: bytes) -> List[Optional[bytes]]:
        """The lines that ``data`` completes; None stands for one that was too long and was dropped."""
        lines: List[Optional[bytes]] = []
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            if self._dropping:
                self._dropping = False
            else:
                lines.append(line if len(line) < MAX_FRAME else None)
        if len(self._rest) >= MAX_FRAME:
            if not self._dropping:
                lines.append(None)
            self._dropping = True
        if self._dropping:
            self._rest = b""
        return lines


def encode(frame: Dict[str, Any]) -> bytes:
    """One line. An answer that would be too long becomes a finding, so that its request does not wait for ever."""
    line = json.dumps(frame, ensure_ascii=True, separators=(",", ":"), default=str).encode("ascii") + b"\n"
    if len(line) <= MAX_FRAME:
        return line
    finding = error("answer_too_large", "The answer does not fit into one frame.", expected=MAX_FRAME, actual=len(line))
    return encode({"id": frame.get("id"), "ok": False, "finding": finding.to_json()})


def decode(line: bytes) -> Dict[str, Any]:
    """A request with its ``id`` and ``op``. Raises FindingError for anything else."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        frame = None
    if not isinstance(frame, dict) or not isinstance(frame.get("id"), int) or not isinstance(frame.get("op"), str):
        raise FindingError(
            error(
                "frame_malformed",
                "A request has to be one JSON object on a line, with a number under id and a name under op.",
                actual=line[:80].decode("utf-8", "replace"),
            )
        )
    return frame


def answer(identifier: Optional[int], result: Dict[str, Any]) -> Dict[str, Any]:
    return {"id": identifier, "ok": True, "result": result}


def refusal(identifier: Optional[int], finding: Finding) -> Dict[str, Any]:
    return {"id": identifier, "ok": False, "finding": finding.to_json()}


def to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def field(request: Dict[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    """``request[name]`` if it is of this kind. Without a default the field has to be there; null takes the default."""
    value = request.get(name)
    if value is None and default is not ...:
        return default
    if kind is float and isinstance(value, int):
        value = float(value)
    # True is an int to Python, and no offset is meant by it.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FindingError(
            error(
                "request_invalid",
                f"The field {name} of {request.get('op')} has to be of type {kind.__name__}.",
                path=name,
                expected=kind.__name__,
                actual=type(value).__name__,
            )
        )
    return value


def data_field(request: Dict[str, Any]) -> bytes:
    """The bytes under ``data``."""
    try:
        return base64.b64decode(field(request, "data", str), validate=True)
    except binascii.Error as problem:
        raise FindingError(error("request_invalid", f"data is not base64: {problem}.", path="data")) from problem
