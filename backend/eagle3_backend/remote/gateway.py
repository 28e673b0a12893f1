"""Client of the gateway: one channel for a host's telemetry, tails, starts and stops.

A frame is one JSON object a line, at most 1 MiB. Reads are chunks that are split here: asyncssh's ``readline`` cuts a
line at its window of 2 MiB without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.remote.link import CHUNK, LinkLost, Stream

PROTOCOL = 1
MAX_FRAME = 1024 * 1024
"""Longest frame, bytes."""

PING_SECONDS = 5.0
SILENCE_SECONDS = 15.0
"""No frame for this long: the gateway is given up, whatever the SSH connection says of itself."""

REQUEST_SECONDS = 120.0
BACKLOG = 8 * 1024 * 1024
"""Bytes of pushes that may wait for a slow reader before its subscription is ended; it resumes at its stored offset."""


class LineSplitter:
    """Cuts a byte stream into lines; the half line at the end waits for its rest."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self._limit = limit

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without their ends. Raises LinkLost for a line over the limit."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts, self._held = [], 0
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
        if self._held > self._limit or any(len(line) > self._limit for line in lines):
            raise LinkLost(f"a frame of more than {self._limit} bytes came from the host")
        return lines


class _Subscription:
    """Pushes of one subscription on their way to its reader: bounded in bytes, never in the way of other frames."""

    def __init__(self) -> None:
        self._items: list[tuple[dict[str, Any], int]] = []
        self._waiting = 0
        self._ready = asyncio.Event()
        self._ended: LinkLost | None = None

    def push(self, frame: dict[str, Any], size: int) -> bool:
        """Queue a push; False when its reader is too far behind and the subscription is over."""
        if self._ended is not None:
            return False
        if self._waiting + size > BACKLOG:
            self.end(LinkLost("the reader fell behind"))
            return False
        self._items.append((frame, size))
        self._waiting += size
        self._ready.set()
        return True

    def end(self, reason: LinkLost) -> None:
        self._ended = self._ended or reason
        self._ready.set()

    async def next(self) -> dict[str, Any]:
        while not self._items:
            if self._ended is not None:
                raise self._ended
            self._ready.clear()
            await self._ready.wait()
        frame, size = self._items.pop(0)
        self._waiting -= size
        return frame


class GatewayClient:
    """One gateway process at the far end of one stream. A new link makes a new client: nothing old can answer it."""

    def __init__(self, stream: Stream, on_ping: Callable[[], None] = lambda: None) -> None:
        self._stream = stream
        self._on_ping = on_ping
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._subscriptions: dict[int, _Subscription] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.reason: LinkLost | None = None
        self.lost = asyncio.Event()
        self.heard_at = time.monotonic()
        self.latency: float | None = None
        self.skew: float | None = None

    async def start(self) -> dict[str, Any]:
        """Read and greet. Raises LinkLost, FindingError (`gateway_protocol_mismatch`, `host_python_missing`)."""
        self._tasks.append(asyncio.create_task(self._read()))
        hello = await self._timed("hello", 60.0)
        problem = _hello_problem(hello)
        if problem:
            raise FindingError(problem)
        self._tasks.append(asyncio.create_task(self._ping()))
        return hello

    async def request(self, op: str, *, timeout: float = REQUEST_SECONDS, **fields: Any) -> dict[str, Any]:
        """One question, one answer. Raises FindingError with the host's finding, or LinkLost."""
        if self.reason is not None:
            raise self.reason
        number = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            # The time limit covers the write too: a black-holed link takes no more bytes once its window is full.
            async with asyncio.timeout(timeout):
                await self._send({"id": number, "op": op, **fields})
                answer = await future
        except TimeoutError:
            raise FindingError(
                error(
                    "host_not_answering",
                    f"The host did not answer '{op}' within {timeout:.0f} s.",
                    path=op,
                    fix="A disk or network file system there may hang: look at the host.",
                )
            ) from None
        finally:
            self._waiting.pop(number, None)
        if not answer.get("ok"):
            raise FindingError(Finding.from_json(answer["finding"]))
        return answer.get("result") or {}

    async def _send(self, frame: dict[str, Any]) -> None:
        data = json.dumps(frame, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
        if len(data) > MAX_FRAME:
            raise FindingError(
                error("frame_too_long", f"The request '{frame['op']}' has {len(data)} bytes.", actual=len(data))
            )
        try:
            await self._stream.write(data)
        except LinkLost as problem:
            self._give_up(problem)
            raise

    async def subscribe(self, op: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        """Pushes of ``op`` until the link is lost (LinkLost). Raises FindingError when the host refuses or ends it."""
        name = next(self._ids)
        subscription = self._subscriptions[name] = _Subscription()
        try:
            await self.request(op, sub=name, **fields)
            while True:
                push = await subscription.next()
                if "finding" in push:
                    raise FindingError(Finding.from_json(push["finding"]))
                yield push
        finally:
            del self._subscriptions[name]
            if self.reason is None:
                # Nobody waits for this answer: the reader may be leaving in the middle of a cancellation.
                with contextlib.suppress(LinkLost):
                    await self._send({"id": next(self._ids), "op": "unfollow", "sub": name})

    async def close(self) -> None:
        self._give_up(LinkLost("the link was closed"))
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(LinkLost):
            await self._stream.close()

    async def _read(self) -> None:
        splitter = LineSplitter()
        try:
            while block := await self._stream.read(CHUNK):
                for line in splitter.feed(block):
                    self._take(line)
                self.heard_at = time.monotonic()
            raise LinkLost(f"the gateway ended. {self._stream.complaint()}".strip())
        except LinkLost as problem:
            self._give_up(problem)

    def _take(self, line: bytes) -> None:
        try:
            frame = json.loads(line)
        except ValueError:
            return  # a login shell's greeting, not a frame
        if not isinstance(frame, dict):
            return
        subscription = self._subscriptions.get(frame.get("sub", 0))
        if "id" in frame:
            future = self._waiting.get(frame["id"])
            if future is not None and not future.done():
                future.set_result(frame)
        elif subscription is not None:
            subscription.push(frame, len(line))

    async def _ping(self) -> None:
        while not self.lost.is_set():
            began = time.monotonic()
            with contextlib.suppress(FindingError, LinkLost):
                # After the greeting, in whose round trip the gateway itself had to start.
                await self._timed("ping", PING_SECONDS)
            self._on_ping()
            if time.monotonic() - self.heard_at > SILENCE_SECONDS:
                self._give_up(LinkLost(f"nothing came from the host for {SILENCE_SECONDS:.0f} s"))
            await asyncio.sleep(max(0.0, began + PING_SECONDS - time.monotonic()))

    async def _timed(self, op: str, timeout: float) -> dict[str, Any]:
        """Ask for the host's clock, and measure the round trip by it."""
        sent, began = time.time(), time.monotonic()
        answer = await self.request(op, timeout=timeout)
        self.latency = time.monotonic() - began
        self.skew = answer["wall"] - (sent + self.latency / 2)
        return answer

    def _give_up(self, reason: LinkLost) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        self.lost.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(reason)
        for subscription in self._subscriptions.values():
            subscription.end(reason)


def _hello_problem(hello: dict[str, Any]) -> Finding | None:
    if hello.get("protocol") != PROTOCOL:
        return error(
            "gateway_protocol_mismatch",
            f"The gateway speaks protocol {hello.get('protocol')}, this laptop {PROTOCOL}.",
            expected=PROTOCOL,
            actual=hello.get("protocol"),
            fix="Update eagle3-tui on this laptop.",
        )
    if not hello.get("psutil"):
        return error(
            "host_python_missing",
            f"The host's interpreter (Python {hello.get('python')}) has no psutil.",
            path="environments.host.python",
            fix="Install psutil there, or name another interpreter under [environments.host].",
        )
    return None
