"""A host that is only files in memory, and whose link breaks where a test wants it to."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest


class LinkCut(Exception):
    """The link of a `FakeHost` broke."""


class FakeHost:
    """Answers `read` and `follow` for one attempt like a gateway, in chunks of ``chunk`` bytes."""

    def __init__(self, chunk: int = 64) -> None:
        self.files: dict[str, bytes] = {"journal.jsonl": b"", "output.log": b""}
        self.generation = "g1"
        self.chunk = chunk
        self.cut_after: int | None = None
        self.asked: list[dict[str, Any]] = []

    def _start(self, content: bytes, fields: dict[str, Any]) -> int:
        if fields.get("generation") == self.generation:
            return int(fields["offset"])
        return max(0, len(content) - fields["tail"]) if fields.get("tail") is not None else 0

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        self.asked.append({"op": op, **fields})
        content = self.files[fields["file"]]
        data = content[fields["offset"] : fields["offset"] + min(fields["length"], self.chunk)]
        return {
            "generation": self.generation,
            "offset": fields["offset"],
            "data": base64.b64encode(data).decode(),
            "size": len(content),
        }

    async def subscribe(self, op: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        self.asked.append({"op": op, **fields})
        content = self.files[fields["file"]]
        at = self._start(content, fields)
        end = len(content) if self.cut_after is None else min(len(content), self.cut_after)
        while at < end:
            data = content[at : min(at + self.chunk, end)]
            yield {"generation": self.generation, "offset": at, "data": base64.b64encode(data).decode()}
            at += len(data)
        raise LinkCut


def journal_bytes(count: int, start: int = 0) -> bytes:
    lines = []
    for seq in range(start, start + count):
        line: dict[str, Any] = {"w": "stage", "seq": seq, "t": 100.0 + seq, "mono": float(seq), "kind": "note"}
        if seq % 3 == 1:
            line |= {"kind": "metric", "step": seq, "values": {"train/loss": 1.0 / (seq + 1)}}
        elif seq % 3 == 2:
            line |= {"kind": "progress", "done": seq, "total": count, "unit": "steps", "rate": 1.5}
        else:
            line |= {"text": f"größer {seq} ✓"}
        lines.append(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return b"".join(lines)


@pytest.fixture
def make_host() -> Callable[..., FakeHost]:
    return FakeHost


@pytest.fixture
def make_journal() -> Callable[..., bytes]:
    return journal_bytes


@pytest.fixture
def link_cut() -> type[Exception]:
    return LinkCut
