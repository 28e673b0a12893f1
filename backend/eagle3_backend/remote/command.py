"""The transport command as a maker of links: `docker exec -i`, `kubectl exec -i`, `srun --overlap` and the like."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from eagle3_backend.findings import FindingError, error
from eagle3_backend.remote.link import CHUNK, ERROR_TAIL, Completed, LinkLost, last_words, put_by_cat

LEAVE_SECONDS = 2.0
"""How long a command may take to end by itself once its input has ended."""


class CommandStream:
    """One transport process and what runs at its far end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self._errors = b""
        self._drain = asyncio.create_task(self._read_errors(process.stderr))

    async def _read_errors(self, source: asyncio.StreamReader) -> None:
        while block := await source.read(CHUNK):
            self._errors = (self._errors + block)[-ERROR_TAIL:]

    async def read(self, limit: int) -> bytes:
        return await self._out.read(limit)

    async def write(self, data: bytes) -> None:
        try:
            self._in.write(data)
            await self._in.drain()
        except OSError as problem:
            raise LinkLost(f"the transport command ended: {self.complaint() or problem}") from problem

    async def close(self) -> None:
        self._in.close()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            _end(self._process)
            await self._process.wait()
        self._drain.cancel()

    def complaint(self) -> str:
        return last_words(self._errors)


class CommandLink:
    """Runs everything through ``[*transport, "sh", "-c", command]``. It has no tunnels and no SFTP of its own."""

    def __init__(self, transport: Sequence[str]) -> None:
        self._transport = tuple(transport)
        self._streams: list[CommandStream] = []
        self.closed = asyncio.Event()

    async def run(self, command: str, input: bytes = b"", timeout: float = 30.0) -> Completed:
        process = await self._spawn(command)
        try:
            async with asyncio.timeout(timeout):
                out, errors = await process.communicate(input)
        finally:
            _end(process)
        status = process.returncode
        return Completed(status if status is not None and status >= 0 else None, out, errors)

    async def open(self, command: str) -> CommandStream:
        stream = CommandStream(await self._spawn(command))
        self._streams.append(stream)
        return stream

    async def put(self, source: Path | bytes, remote_path: str) -> None:
        await put_by_cat(self, source, remote_path)

    async def forward(self, remote_port: int, local_port: int = 0) -> int:
        raise FindingError(
            error(
                "transport_no_tunnel",
                f"A transport command ({self._transport[0]}) carries no tunnels; port {remote_port} stays on the host.",
                path="host.transport",
                fix="Reach the host by SSH, or forward the port by the transport's own means.",
            )
        )

    async def close(self) -> None:
        self.closed.set()
        streams, self._streams = self._streams, []
        await asyncio.gather(*(stream.close() for stream in streams))

    async def _spawn(self, command: str) -> asyncio.subprocess.Process:
        if self.closed.is_set():
            raise LinkLost("the link is closed")
        try:
            # A session of its own: Ctrl-C in the terminal is for the panel, not for the link.
            return await asyncio.create_subprocess_exec(
                *self._transport,
                "sh",
                "-c",
                command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as problem:
            raise FindingError(
                error(
                    "transport_failed",
                    f"The transport command {self._transport[0]} cannot be started: {problem.strerror}.",
                    path="host.transport",
                    actual=list(self._transport),
                    fix="Install it, or correct host.transport in the profile.",
                )
            ) from problem


def _end(process: asyncio.subprocess.Process) -> None:
    """End a transport process that is still there, with whatever it started in its session."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
