"""Logging in: strict host keys, explicit jump connections under the same policy, and what a failure means."""

from __future__ import annotations

import asyncio
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncssh

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.remote import hostkeys
from eagle3_backend.remote.hostkeys import OfferedKey
from eagle3_backend.remote.ssh import SshLink
from eagle3_backend.remote.ssh_config import Hop

OPTIONS: Mapping[str, Any] = {
    "keepalive_interval": 5,
    "keepalive_count_max": 2,
    "connect_timeout": 10,
    "login_timeout": 30,
    "agent_forwarding": False,
    "compression_algs": None,
    # asyncssh offers chacha20 first; with AES in the CPU this one costs about half.
    "encryption_algs": "^aes128-gcm@openssh.com",
    "encoding": None,
}
"""Connection options of every login. A silent peer is noticed after interval x (count + 1) = 15 s."""


_MAYBE_THE_KEY = (
    asyncssh.HostKeyNotVerifiable,
    asyncssh.KeyExchangeFailed,
    asyncssh.ConnectionLost,
    ConnectionResetError,
    BrokenPipeError,
)
"""How a login fails when the host's key may be the reason."""


class HostKeyRefused(FindingError):
    """A host's key is unknown or another one: ``offered`` is what it showed, ``known_hosts`` the file to keep it in."""

    def __init__(self, finding: Finding, offered: OfferedKey, known_hosts: Path | None) -> None:
        super().__init__(finding)
        self.offered = offered
        self.known_hosts = known_hosts


class _Watch(asyncssh.SSHClient):
    """Sets ``closed`` when the connection is gone."""

    def __init__(self, closed: asyncio.Event) -> None:
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()


async def connect(
    hops: tuple[Hop, ...], accepted: tuple[OfferedKey, ...] = (), options: Mapping[str, Any] = OPTIONS
) -> SshLink:
    """Log in along ``hops`` (see `ssh_config.chain`). ``accepted`` are unknown keys that the operator took once.

    Raises HostKeyRefused, or FindingError: `host_unknown`, `host_unreachable`, `ssh_authentication_failed`,
    `ssh_negotiation_failed`.
    """
    opened: list[asyncssh.SSHClientConnection] = []
    closed = asyncio.Event()
    try:
        for hop in hops:
            tunnel = opened[-1] if opened else None
            opened.append(await _login(hop, tunnel, accepted, {**options, **hop.options}, closed, hops[-1].name))
    except BaseException:
        for connection in reversed(opened):
            connection.abort()
        raise
    *jumps, connection = opened
    return SshLink(connection, jumps, closed)


async def _login(
    hop: Hop,
    tunnel: asyncssh.SSHClientConnection | None,
    accepted: tuple[OfferedKey, ...],
    options: dict[str, Any],
    closed: asyncio.Event,
    name: str,
) -> asyncssh.SSHClientConnection:
    text = "\n".join([hostkeys.read_text(hop.known_hosts), *(key.line for key in accepted)])
    known = hostkeys.KnownHosts(text)

    def trusted(_name: str, _address: str, _port: int | None) -> tuple[list, ...]:
        return known.match(hop.key_name, hop.port)

    try:
        return await asyncssh.connect(
            **options, tunnel=tunnel, known_hosts=trusted, client_factory=lambda: _Watch(closed)
        )
    except _MAYBE_THE_KEY as problem:
        # asyncssh's own validation cannot ask anybody, so the key is fetched and judged apart. A host that has none of
        # the listed kinds of key fails in the key exchange already, or hangs up.
        raise await _key_refused(hop, tunnel, text, problem, name) from problem
    except (OSError, asyncssh.Error) as problem:
        raise FindingError(_failure(problem, hop)) from problem


async def _key_refused(
    hop: Hop, tunnel: asyncssh.SSHClientConnection | None, text: str, problem: Exception, name: str
) -> FindingError:
    listed = hostkeys.KnownHosts(text).match(hop.key_name, hop.port)[0]
    kinds = [algorithm.decode() for key in listed for algorithm in key.sig_algorithms]
    address = {name: hop.options[name] for name in ("host", "port", "config") if name in hop.options}
    key = None
    # The listed kinds first: a host may have further keys that prove nothing.
    for algorithms in (kinds, ()) if kinds else ((),):
        try:
            key = await asyncssh.get_server_host_key(**address, tunnel=tunnel, server_host_key_algs=algorithms)
            break
        except (OSError, asyncssh.Error):
            continue
    if key is None:
        return FindingError(_failure(problem, hop))
    offered = OfferedKey(hop.key_name, hop.port, key.export_public_key("openssh").decode().strip())
    finding = hostkeys.judge(text, offered.host, offered.port, offered.key, name)
    if finding is None:
        return FindingError(_failure(problem, hop))
    return HostKeyRefused(finding, offered, next(iter(hop.known_hosts), None))


def _failure(problem: Exception, hop: Hop) -> Finding:
    """What a failed login means and what to do next."""
    if isinstance(problem, socket.gaierror):
        return error(
            "host_unknown",
            f"The name {hop.host} is not known: {problem.strerror}.",
            path=hop.name,
            actual=hop.host,
            fix="Correct host.address in the profile or HostName in ~/.ssh/config; check that the laptop is online.",
        )
    if isinstance(problem, asyncssh.PermissionDenied):
        return error(
            "ssh_authentication_failed",
            f"{hop.address} accepts none of the offered keys: {problem.reason}.",
            path=hop.name,
            actual=hop.address,
            fix="Load the right key (ssh-add), or name it with host.identity; check host.user.",
        )
    if isinstance(problem, asyncssh.Error) and not isinstance(problem, asyncssh.ConnectionLost):
        return error(
            "ssh_negotiation_failed",
            f"{hop.host}:{hop.port} and this laptop found no way to speak SSH: {problem.reason}.",
            path=hop.name,
            fix="Check that an SSH server answers on that port: ssh -v " + shlex.quote(hop.name),
        )
    reason = "no answer in time" if isinstance(problem, TimeoutError) else str(problem) or type(problem).__name__
    return error(
        "host_unreachable",
        f"{hop.host}:{hop.port} cannot be reached: {reason}.",
        path=hop.name,
        actual=f"{hop.host}:{hop.port}",
        fix="Check that the machine is up and that address and port are right.",
    )
