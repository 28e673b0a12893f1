"""Brings a run's journal and log to the laptop, exactly once, from wherever the stored copy ends.

A follower ends with its link (the gateway's exception comes through); the next one goes on at the stored offset.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from eagle3_backend.runs.lines import Line, parse
from eagle3_backend.runs.segments import Segments
from eagle3_backend.runs.store import Key, Store

JOURNAL = "journal.jsonl"
LOG = "output.log"

READ_BYTES = 256 * 1024
"""Bytes asked for in one `read`; with base64 they fit a frame of 1 MiB."""

TAIL_BYTES = 256 * 1024
"""What the first opening of a log brings."""

SKIP_BYTES = 2 * 1024 * 1024
"""A copy of a log that is further behind than this starts a new segment at the tail."""

MAX_HALF_LINE = 1024 * 1024
"""Journal writers stay far below this; a longer stretch without a line feed is stored as one unreadable line."""


class Gateway(Protocol):
    """What a follower needs of a host: `remote.session.HostSession` has it."""

    async def request(self, op: str, **fields: Any) -> dict[str, Any]: ...

    def subscribe(self, op: str, **fields: Any) -> AsyncIterator[Mapping[str, Any]]: ...


class StartOver(Exception):
    """The journal began anew, or the stored copy is not where this follower left it: a new follower goes on from it."""


class JournalFollower:
    """Stores the journal of one attempt and hands its lines to ``on_lines``, the stored ones first. For one use.

    Of stored lines, metrics are left out (they are series in the store) and of progress only the newest comes. Another
    program may store the same stretch at the same time; each of the two still sees every new line.
    """

    def __init__(self, store: Store, key: Key, on_lines: Callable[[list[Line]], None]) -> None:
        self._store = store
        self._key = key
        self._on_lines = on_lines
        self._generation, self._seen = store.position(key)  # all bytes below _seen went to on_lines
        self._pending = b""  # bytes from _seen on: a half line

    async def follow(self, gateway: Gateway) -> None:
        """Follow until the link ends or the task is cancelled. Raises StartOver."""
        self._hand_out_stored()
        pushes = gateway.subscribe(
            "follow",
            run=self._key.run,
            attempt=self._key.attempt,
            file=JOURNAL,
            generation=self._generation or None,
            offset=self._seen,
            tail=None,
        )
        async for push in pushes:
            if "data" in push:
                self._take(str(push["generation"]), int(push["offset"]), base64.b64decode(push["data"]))

    async def catch_up(self, gateway: Gateway) -> None:
        """Bring everything that is there now, for a run that has ended. Raises StartOver."""
        self._hand_out_stored()
        while True:
            answer = await gateway.request(
                "read",
                run=self._key.run,
                attempt=self._key.attempt,
                file=JOURNAL,
                offset=self._seen + len(self._pending),
                length=READ_BYTES,
            )
            data = base64.b64decode(answer["data"])
            self._take(str(answer["generation"]), int(answer["offset"]), data)
            if not data or int(answer["offset"]) + len(data) >= int(answer["size"]):
                return

    def _hand_out_stored(self) -> None:
        lines = self._store.lines(self._key, without=("metric", "progress"))
        progress = self._store.last(self._key, "progress")
        lines += [progress] if progress else []
        if lines:
            self._on_lines(sorted((line for line in lines if line.offset < self._seen), key=lambda line: line.offset))

    def _take(self, generation: str, offset: int, data: bytes) -> None:
        """Take bytes that lie at ``offset``; what was taken before is passed over, a half line waits for its end."""
        if generation != self._generation:
            self._store.restart(self._key, generation)
            if self._seen:
                raise StartOver
            self._generation, self._pending = generation, b""
        known = self._seen + len(self._pending)
        if offset > known:
            raise StartOver
        self._pending += data[known - offset :]
        whole = self._pending.rfind(b"\n") + 1
        if whole == 0 and len(self._pending) > MAX_HALF_LINE:
            whole = len(self._pending)
        if whole:
            chunk, self._pending = self._pending[:whole], self._pending[whole:]
            self._keep(chunk)
            start, self._seen = self._seen, self._seen + len(chunk)
            self._on_lines(parse(chunk, start))

    def _keep(self, chunk: bytes) -> None:
        """Store what nobody has stored yet of these lines, which start at ``_seen``."""
        stored = self._seen
        while stored < self._seen + len(chunk):
            if self._store.append(self._key, self._generation, stored, chunk[stored - self._seen :]):
                return
            generation, stored = self._store.position(self._key)
            if generation != self._generation or stored < self._seen:
                raise StartOver


class LogFollower:
    """Stores the log of one attempt as segments and calls ``on_bytes(offset, data)`` for everything new."""

    def __init__(self, segments: Segments, key: Key, on_bytes: Callable[[int, bytes], None]) -> None:
        self._segments = segments
        self._key = key
        self._on_bytes = on_bytes

    async def follow(self, gateway: Gateway) -> None:
        """Follow until the link ends or the task is cancelled. A first opening brings the tail."""
        generation, end = self._segments.generation(), self._segments.end()
        pushes = gateway.subscribe(
            "follow",
            run=self._key.run,
            attempt=self._key.attempt,
            file=LOG,
            generation=generation or None,
            offset=end or 0,
            tail=TAIL_BYTES if end is None else None,
        )
        async for push in pushes:
            if "data" in push:
                self._take(str(push["generation"]), int(push["offset"]), base64.b64decode(push["data"]))

    async def catch_up(self, gateway: Gateway) -> None:
        """Bring the log of a run that has ended: from the stored end on, or its tail when that is far behind."""
        size = int((await self._read(gateway, 0, 0))["size"])
        end = self._segments.end()
        offset = max(0, size - TAIL_BYTES) if end is None or size - end > SKIP_BYTES or end > size else end
        while offset < size:
            answer = await self._read(gateway, offset, READ_BYTES)
            data = base64.b64decode(answer["data"])
            if not data:
                return
            self._take(str(answer["generation"]), offset, data)
            offset += len(data)

    async def _read(self, gateway: Gateway, offset: int, length: int) -> dict[str, Any]:
        return await gateway.request(
            "read", run=self._key.run, attempt=self._key.attempt, file=LOG, offset=offset, length=length
        )

    def _take(self, generation: str, offset: int, data: bytes) -> None:
        if generation != self._segments.generation():
            self._segments.restart(generation)
        self._segments.write(generation, offset, data)
        self._on_bytes(offset, data)
