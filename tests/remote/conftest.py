from __future__ import annotations

import asyncio
import hashlib
import io
import sys
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from eagle3_backend.profile import Environment, Host
from eagle3_backend.remote import payload
from eagle3_backend.remote.embedded import EmbeddedHost
from eagle3_backend.remote.session import HostSession

HERE = Path(__file__).parent


class Relay:
    """A TCP relay on loopback that can delay, cut after a number of bytes, and swallow everything."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.delay = 0.0
        self.black_hole = False
        self.cut_after: int | None = None
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            host_reader, host_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, host_writer}
        for source, sink, down in ((reader, host_writer, False), (host_reader, writer, True)):
            task = asyncio.create_task(self._carry(source, sink, down))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, down: bool) -> None:
        try:
            while data := await source.read(64 * 1024):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if self.black_hole:
                    continue
                if down and self.cut_after is not None:
                    data, self.cut_after = data[: self.cut_after], self.cut_after - len(data)
                    if self.cut_after <= 0:
                        self.cut_after = None
                        sink.write(data)
                        await self.cut()
                        return
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        if not self.black_hole:
            sink.close()

    async def cut(self) -> None:
        """End every connection that stands; new ones are carried."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def close(self) -> None:
        if self._server:
            self._server.close()
        await self.cut()
        for task in list(self._tasks):
            task.cancel()


@pytest_asyncio.fixture
async def embedded() -> AsyncIterator[EmbeddedHost]:
    host = await EmbeddedHost.start()
    yield host
    await host.close()


@pytest_asyncio.fixture
async def make_relay() -> AsyncIterator[Callable[[int], Awaitable[Relay]]]:
    relays: list[Relay] = []

    async def make(port: int) -> Relay:
        relay = Relay(port)
        await relay.start()
        relays.append(relay)
        return relay

    yield make
    for relay in relays:
        await relay.close()


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> payload.Payload:
    """A payload whose gateway is the stand-in: the link is tested apart from the agent."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("eagle3_backend/__init__.py", "")
        archive.writestr("eagle3_backend/agent/__init__.py", "")
        archive.writestr("eagle3_backend/agent/gateway.py", (HERE / "standin_gateway.py").read_text(encoding="utf-8"))
    made = payload.Payload(buffer.getvalue(), hashlib.sha256(buffer.getvalue()).hexdigest())
    monkeypatch.setattr(payload, "build", lambda: made)
    return made


@pytest_asyncio.fixture
async def open_session(tmp_path: Path) -> AsyncIterator[Callable[..., HostSession]]:
    """Make sessions (not yet connected) that are closed at the end; by default on the embedded host."""
    sessions: list[HostSession] = []

    def make(host: Host | None = None, **rest: Any) -> HostSession:
        host = host or Host(address="embedded", workspace=str(tmp_path / "workspace"))
        environments = rest.pop("environments", {"host": Environment(python=sys.executable)})
        session = HostSession(host, environments, **rest)
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        await session.close()


@pytest.fixture
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off short enough for a test."""
    monkeypatch.setattr("eagle3_backend.remote.session.BACKOFF_SECONDS", (0.05, 0.2))


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Wait for a condition."""

    async def wait(condition: Callable[[], object], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    return wait
