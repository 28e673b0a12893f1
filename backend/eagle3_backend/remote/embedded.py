"""The embedded host: an SSH server of our own on loopback, so that the laptop is a host like any other."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import signal
from collections.abc import Callable
from typing import Any

import asyncssh

from eagle3_backend.remote import login
from eagle3_backend.remote.hostkeys import OfferedKey
from eagle3_backend.remote.link import CHUNK
from eagle3_backend.remote.ssh import SshLink
from eagle3_backend.remote.ssh_config import Hop


class Server(asyncssh.SSHServer):
    """Accepts the one key that was made for this server; forwards to loopback only."""

    def __init__(self, client_key: asyncssh.SSHKey) -> None:
        self._client_key = client_key

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._client_key

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        # asyncssh forwards nothing unless told to.
        return dest_host in ("127.0.0.1", "localhost", "::1")


async def run_command(process: asyncssh.SSHServerProcess) -> None:
    """Run what the client asked for under sh, in a session of its own, bytes untouched."""
    if process.command is None:
        process.exit(1)
        return
    child = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        process.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin and child.stdout and child.stderr
    feeding = asyncio.create_task(_feed(process.stdin, child.stdin))
    try:
        await asyncio.gather(_carry(child, child.stdout, process.stdout), _carry(child, child.stderr, process.stderr))
        status = await child.wait()
    except asyncio.CancelledError:
        _end(child)
        await child.wait()
        raise
    finally:
        feeding.cancel()
    if status < 0:
        process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
    else:
        process.exit(status)


def _end(child: asyncio.subprocess.Process) -> None:
    """End a command's session. What detached itself (a supervisor) is in another one and lives on."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


async def _feed(source: asyncssh.SSHReader, child: asyncio.StreamWriter) -> None:
    """Client to command; a client that is gone is the end of input, as under sshd."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while block := await source.read(CHUNK):
            child.write(block)
            await child.drain()
    child.close()


async def _carry(child: asyncio.subprocess.Process, source: asyncio.StreamReader, target: asyncssh.SSHWriter) -> None:
    """Command to client. A command that goes on writing to a client that is gone is ended, as a broken pipe would."""
    while block := await source.read(CHUNK):
        try:
            target.write(block)
            await target.drain()
        except (OSError, asyncssh.Error):
            _end(child)


class EmbeddedHost:
    """The server, its keys (in memory only, made at each start) and the login that fits them."""

    def __init__(
        self,
        acceptor: asyncssh.SSHAcceptor,
        host_key: asyncssh.SSHKey,
        client_key: asyncssh.SSHKey,
        commands: set[asyncio.Task[None]],
    ) -> None:
        self._acceptor = acceptor
        self._client_key = client_key
        self._commands = commands
        self.port: int = acceptor.get_port()
        self.offered = OfferedKey("127.0.0.1", self.port, host_key.export_public_key("openssh").decode().strip())

    @classmethod
    async def start(
        cls, server_factory: Callable[[asyncssh.SSHKey], asyncssh.SSHServer] = Server, **options: Any
    ) -> EmbeddedHost:
        """Listen on a free port of 127.0.0.1. Another ``server_factory`` is given the client's public key."""
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        client_key = asyncssh.generate_private_key("ssh-ed25519")
        public_key = client_key.convert_to_public()
        commands: set[asyncio.Task[None]] = set()

        async def run(process: asyncssh.SSHServerProcess) -> None:
            task = asyncio.current_task()
            assert task is not None
            commands.add(task)
            try:
                await run_command(process)
            finally:
                commands.discard(task)

        settings: dict[str, Any] = {
            "server_host_keys": [host_key],
            "server_factory": lambda: server_factory(public_key),
            "process_factory": run,
            "sftp_factory": True,
            "encoding": None,
            "password_auth": False,
            "kbdint_auth": False,
            "gss_host": None,
            "allow_pty": False,
            "agent_forwarding": False,
            "x11_forwarding": False,
            "line_editor": False,
            **options,
        }
        return cls(await asyncssh.listen("127.0.0.1", 0, config=None, **settings), host_key, client_key, commands)

    @property
    def hop(self) -> Hop:
        """The login: strict about the generated host key, and no file of the user is read."""
        return Hop(
            name="embedded",
            host="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            key_name="127.0.0.1",
            known_hosts=(),
            options={
                "host": "127.0.0.1",
                "port": self.port,
                "username": getpass.getuser(),
                "config": None,
                "agent_path": None,
                "client_keys": [self._client_key],
            },
        )

    async def connect(self) -> SshLink:
        return await login.connect((self.hop,), accepted=(self.offered,))

    async def close(self) -> None:
        """Stop listening. Commands end by themselves once their client is gone; after two seconds they are ended."""
        self._acceptor.close()
        if self._commands:
            _, late = await asyncio.wait(set(self._commands), timeout=2.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await self._acceptor.wait_closed()
