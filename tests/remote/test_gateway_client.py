"""The gateway client over streams that are cut at every byte, torn into pieces and kept silent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.remote.gateway import GatewayClient, LineSplitter
from eagle3_backend.remote.link import LinkLost

CONTENT = bytes(range(256)) + b"\xff\n\xc3" * 20


class Stream:
    """A host in memory: answers hello and ping, and serves ``CONTENT`` from an offset; ends after ``limit`` bytes."""

    def __init__(self, limit: int | None = None, piece: int = 10_000) -> None:
        self.limit = limit
        self.piece = piece
        self.sent = 0
        self.mute = False
        self.wall = 0.0
        self.requests: list[dict] = []
        self._buffer = b""
        self._more = asyncio.Event()

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            request = json.loads(line)
            self.requests.append(request)
            if self.mute:
                continue
            clocked = request["op"] in ("hello", "ping")
            result = {"protocol": 1, "psutil": "7", "wall": self.wall, "python": "3"} if clocked else {}
            self._put({"id": request["id"], "ok": True, "result": result})
            if request["op"] == "follow":
                for offset in range(request["offset"], len(CONTENT), 40):
                    data = base64.b64encode(CONTENT[offset : offset + 40]).decode()
                    self._put({"sub": request["sub"], "generation": "g", "offset": offset, "data": data})

    def _put(self, frame: dict) -> None:
        self._buffer += json.dumps(frame).encode() + b"\n"
        self._more.set()

    async def read(self, limit: int) -> bytes:
        while not self._buffer:
            self._more.clear()
            await self._more.wait()
        size = min(self.piece, limit)
        if self.limit is not None:
            size = min(size, self.limit - self.sent)
        block, self._buffer = self._buffer[:size], self._buffer[size:]
        self.sent += len(block)
        return block

    async def close(self) -> None:
        pass

    def complaint(self) -> str:
        return ""


async def follow_once(stream: Stream, stored: bytearray) -> None:
    """Greet and follow from the stored offset until the end or the cut; store only what comes next."""
    client = GatewayClient(stream)
    try:
        await client.start()
        async for push in client.subscribe("follow", offset=len(stored)):
            assert push["offset"] == len(stored)
            stored += base64.b64decode(push["data"])
            if len(stored) == len(CONTENT):
                return
    finally:
        await client.close()


async def whole_length() -> int:
    stream = Stream()
    await follow_once(stream, bytearray())
    return stream.sent


async def test_a_cut_at_every_byte_leaves_each_byte_stored_once():
    length = await whole_length()
    assert length > 500
    for cut in range(length):
        stored = bytearray()
        with contextlib.suppress(LinkLost):
            await follow_once(Stream(limit=cut), stored)
        assert CONTENT.startswith(bytes(stored))
        if len(stored) < len(CONTENT):
            await follow_once(Stream(), stored)
        assert stored == CONTENT


async def test_frames_in_pieces_of_one_byte_arrive_whole():
    stored = bytearray()
    await follow_once(Stream(piece=1), stored)
    assert stored == CONTENT


async def test_the_hosts_clock_is_looked_at_again_with_every_ping(until):
    stream = Stream()
    client = GatewayClient(stream)
    await client.start()
    stream.wall = time.time() + 3600  # as a clock that was set meanwhile
    await until(lambda: client.skew == pytest.approx(3600, abs=60))
    await client.close()


async def test_leaving_a_subscription_tells_the_host():
    stream = Stream()
    client = GatewayClient(stream)
    await client.start()
    pushes = client.subscribe("follow", offset=0)
    await anext(pushes)
    await pushes.aclose()
    subs = {request["op"]: request["sub"] for request in stream.requests if "sub" in request}
    assert subs["unfollow"] == subs["follow"]
    await client.close()


async def test_a_silent_host_is_given_up_and_every_waiter_hears_it(monkeypatch):
    monkeypatch.setattr("eagle3_backend.remote.gateway.PING_SECONDS", 0.02)
    monkeypatch.setattr("eagle3_backend.remote.gateway.SILENCE_SECONDS", 0.1)
    stream = Stream()
    client = GatewayClient(stream)
    await client.start()
    stream.mute = True
    waiting = [asyncio.create_task(client.request("echo")) for _ in range(3)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [LinkLost] * 3
    with pytest.raises(LinkLost):
        await client.request("echo")
    await client.close()


async def test_a_request_that_is_not_answered_ends_with_a_finding_and_not_the_link():
    stream = Stream()
    client = GatewayClient(stream)
    await client.start()
    stream.mute = True
    with pytest.raises(FindingError) as caught:
        await client.request("artifacts", timeout=0.05)
    assert caught.value.findings[0].code == "host_not_answering"
    assert not client.lost.is_set()
    await client.close()


async def test_an_answer_of_an_older_request_number_is_nobodys(monkeypatch):
    stream = Stream()
    client = GatewayClient(stream)
    await client.start()
    stream.mute = True
    waiting = asyncio.create_task(client.request("echo"))
    await asyncio.sleep(0)
    stream._put({"id": 999, "ok": True, "result": {"stale": True}})
    await asyncio.sleep(0.01)
    stream._put({"id": stream.requests[-1]["id"], "ok": True, "result": {"stale": False}})
    assert await waiting == {"stale": False}
    await client.close()


@pytest.mark.parametrize(("hello", "code"), [({"protocol": 2}, "gateway_protocol_mismatch"), ({}, None)])
async def test_another_protocol_is_refused(hello, code):
    stream = Stream()
    client = GatewayClient(stream)
    put = stream._put
    stream._put = lambda frame: put({**frame, "result": {**frame["result"], **hello}})
    if code is None:
        assert (await client.start())["protocol"] == 1
    else:
        with pytest.raises(FindingError) as caught:
            await client.start()
        assert caught.value.findings[0].code == code
    await client.close()


def test_a_line_without_end_is_refused_before_it_fills_memory():
    splitter = LineSplitter(limit=100)
    assert splitter.feed(b"x" * 60) == []
    with pytest.raises(LinkLost):
        splitter.feed(b"x" * 60)


def test_lines_are_cut_at_line_feeds_only():
    splitter = LineSplitter()
    assert splitter.feed(b"a\r\xc2\x85b\nhal") == [b"a\r\xc2\x85b"]
    assert splitter.feed(b"f\n\n") == [b"half", b""]
