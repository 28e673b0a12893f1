"""A link over SSH: few channels, nothing decoded on the way."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

import asyncssh

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.remote.link import CHUNK, ERROR_TAIL, Completed, LinkLost, last_words, put_by_cat, write_failed

CHANNELS = 4
"""Sessions a connection may hold: sshd's MaxSessions is 10, and newer ones may drop a link that asks for more
(ronf/asyncssh#779, #244)."""

SPARE_CHANNELS = 1
"""Of these, kept free for the user."""

OPEN_TRIES = 6
"""How often a refused channel is asked for again; the waits double from 0.1 s."""

_Result = TypeVar("_Result")


class SshStream:
    """A command on a channel of its own; the channel is given back when the stream is closed."""

    def __init__(self, process: asyncssh.SSHClientProcess, release: Callable[[], None]) -> None:
        self._process = process
        self._release: Callable[[], None] | None = release
        self._errors = b""
        self._drain = asyncio.create_task(self._read_errors())

    async def _read_errors(self) -> None:
        # Unread standard error would fill the channel's window and stop standard output with it.
        with contextlib.suppress(OSError, asyncssh.Error):
            while block := await self._process.stderr.read(CHUNK):
                self._errors = (self._errors + block)[-ERROR_TAIL:]

    async def read(self, limit: int) -> bytes:
        try:
            return await self._process.stdout.read(limit)
        except (OSError, asyncssh.Error) as problem:
            raise LinkLost(str(problem)) from problem

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, asyncssh.Error) as problem:
            raise LinkLost(str(problem)) from problem

    async def close(self) -> None:
        release, self._release = self._release, None
        if release is None:
            return
        with contextlib.suppress(OSError, asyncssh.Error):
            if not self._process.stdin.is_closing():
                self._process.stdin.write_eof()
        self._process.close()
        self._drain.cancel()
        release()

    def complaint(self) -> str:
        return last_words(self._errors)


class SshLink:
    """One SSH connection and the jump connections it stands on."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, jumps: list[asyncssh.SSHClientConnection], closed: asyncio.Event
    ) -> None:
        self._connection = connection
        self._jumps = jumps
        self._channels = asyncio.Semaphore(CHANNELS - SPARE_CHANNELS)
        self._opening = asyncio.Lock()
        self._sftp_refused = False
        self.closed = closed

    async def run(self, command: str, input: bytes = b"", timeout: float = 30.0) -> Completed:
        async with self._channels:
            source: dict[str, Any] = {"input": input} if input else {"stdin": asyncssh.DEVNULL}
            process = await self._opened(lambda: self._connection.create_process(command, encoding=None, **source))
            try:
                async with asyncio.timeout(timeout):
                    done = await process.wait()
            except (asyncssh.Error, OSError) as problem:
                if isinstance(problem, TimeoutError):
                    raise
                raise LinkLost(str(problem)) from problem
            finally:
                process.close()
        if done.exit_status is None and not done.exit_signal:
            raise LinkLost("the link ended before the command did")
        status = done.exit_status if not done.exit_signal else None
        return Completed(status, cast(bytes, done.stdout or b""), cast(bytes, done.stderr or b""))

    async def open(self, command: str) -> SshStream:
        await self._channels.acquire()
        try:
            process = await self._opened(lambda: self._connection.create_process(command, encoding=None))
        except BaseException:
            self._channels.release()
            raise
        return SshStream(process, self._channels.release)

    async def put(self, source: Path | bytes, remote_path: str) -> None:
        if not self._sftp_refused:
            async with self._channels:
                sftp = await self._sftp()
                if sftp is not None:
                    await _put_by_sftp(sftp, source, remote_path)
                    return
            self._sftp_refused = True
        await put_by_cat(self, source, remote_path)

    async def _sftp(self) -> asyncssh.SFTPClient | None:
        """An SFTP session, or None where the host offers none (some rented machines do not)."""
        try:
            return await self._opened(self._connection.start_sftp_client)
        except _RequestRefused:
            return None
        except asyncssh.SFTPError as problem:
            if self.closed.is_set():
                raise LinkLost(problem.reason) from problem
            return None

    async def forward(self, remote_port: int, local_port: int = 0) -> int:
        try:
            listener = await self._connection.forward_local_port("127.0.0.1", local_port, "127.0.0.1", remote_port)
        except asyncssh.Error as problem:
            raise LinkLost(str(problem)) from problem
        return listener.get_port()

    async def close(self) -> None:
        for connection in (self._connection, *reversed(self._jumps)):
            connection.close()
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(2.0):
                await self._connection.wait_closed()
        for connection in (self._connection, *reversed(self._jumps)):
            connection.abort()
        self.closed.set()

    async def _opened(self, make: Callable[[], Awaitable[_Result]]) -> _Result:
        """Open a channel, again with growing waits while the server refuses one. One at a time, so that a refused one
        is next and does not starve beside newcomers."""
        async with self._opening:
            return await self._open_patiently(make)

    async def _open_patiently(self, make: Callable[[], Awaitable[_Result]]) -> _Result:
        for attempt in range(OPEN_TRIES):
            try:
                return await make()
            except asyncssh.ChannelOpenError as problem:
                if self.closed.is_set():
                    raise LinkLost(problem.reason) from problem
                if problem.code == asyncssh.OPEN_REQUEST_SESSION_FAILED:
                    raise _RequestRefused(_refusal(problem.reason)) from problem
                if attempt == OPEN_TRIES - 1:
                    raise FindingError(_refusal(problem.reason)) from problem
            except asyncssh.SFTPError:
                raise
            except (OSError, asyncssh.Error) as problem:
                raise LinkLost(str(problem)) from problem
            await asyncio.sleep(0.1 * 2**attempt * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")


class _RequestRefused(FindingError):
    """The channel opened, but the host does not run what it was asked to run on it."""


def _refusal(reason: str) -> Finding:
    return error(
        "ssh_channel_refused",
        f"The host opens no further session on this connection: {reason}.",
        actual=reason,
        fix="Raise MaxSessions in its sshd_config to 4 or more, or close other sessions of this connection.",
    )


async def _put_by_sftp(sftp: asyncssh.SFTPClient, source: Path | bytes, remote_path: str) -> None:
    temporary = f"{remote_path}.{secrets.token_hex(4)}"
    try:
        await sftp.makedirs(str(PurePosixPath(remote_path).parent), asyncssh.SFTPAttrs(permissions=0o700), True)
        if isinstance(source, bytes):
            async with sftp.open(temporary, "wb", asyncssh.SFTPAttrs(permissions=0o600)) as file:
                await file.write(source)
        else:
            await sftp.put(str(source), temporary)
            await sftp.chmod(temporary, 0o600)
        await sftp.posix_rename(temporary, remote_path)
    except (
        asyncssh.SFTPConnectionLost,
        asyncssh.SFTPNoConnection,
        asyncssh.DisconnectError,
        ConnectionError,
    ) as problem:
        raise LinkLost(str(problem)) from problem
    except asyncssh.SFTPError as problem:
        with contextlib.suppress(OSError, asyncssh.Error):
            await sftp.remove(temporary)
        raise write_failed(remote_path, problem.reason) from problem
    finally:
        sftp.exit()
        with contextlib.suppress(OSError, asyncssh.Error):
            await sftp.wait_closed()
