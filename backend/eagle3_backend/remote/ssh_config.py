"""What ~/.ssh/config and the profile say about reaching a host: addresses, users, keys and the chain of jump hosts."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from eagle3_backend.findings import FindingError, error
from eagle3_backend.profile import Host


@dataclass(frozen=True)
class SshFiles:
    """The user's files: the configuration that is honoured and the known_hosts that keys are judged by.

    ``known_hosts`` None: those that the configuration names, else ``~/.ssh/known_hosts``.
    """

    config: Path = field(default_factory=lambda: Path("~/.ssh/config").expanduser())
    known_hosts: Path | None = None


@dataclass(frozen=True)
class Hop:
    """One SSH login on the way. ``name`` is what the configuration calls it; host, port and user are resolved."""

    name: str
    host: str
    port: int
    user: str
    key_name: str
    known_hosts: tuple[Path, ...]
    options: dict[str, Any]

    @property
    def address(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


def chain(host: Host, files: SshFiles) -> tuple[Hop, ...]:
    """Every login on the way to ``host``, outermost jump first, the host itself last. Sends no packet.

    Raises FindingError: `ssh_proxyjump_loop`, `ssh_config_invalid`, `ssh_identity_unreadable`.
    """
    given: dict[str, Any] = {}
    if host.user:
        given["username"] = host.user
    if host.port:
        given["port"] = host.port
    if host.identity:
        given["client_keys"] = [str(Path(host.identity).expanduser())]
    return _chain(host.address, given, host.jump or None, files, ())


def _chain(
    name: str, given: dict[str, Any], jump: str | None, files: SshFiles, inner: tuple[tuple[str, int], ...]
) -> tuple[Hop, ...]:
    hop, configured = _resolve(name, given, files)
    here = (hop.host.lower(), hop.port)
    if here in inner:
        names = " -> ".join(f"{host}:{port}" for host, port in [here, *reversed(inner[inner.index(here) :])])
        raise FindingError(
            error(
                "ssh_proxyjump_loop",
                f"The jump hosts form a loop: {names}.",
                path=name,
                actual=names,
                fix="Correct ProxyJump in ~/.ssh/config or jump in the profile. Nothing was sent.",
            )
        )
    inner = (*inner, here)
    jumps = [entry.strip() for entry in (configured if jump is None else jump).split(",") if entry.strip()]
    hops: tuple[Hop, ...] = (hop,)
    # As `ssh -J a,b`: the last named jump stands next to the host, only the first follows its own ProxyJump.
    for position, entry in reversed(list(enumerate(jumps))):
        user, at, address = entry.rpartition("@")
        target, given = _split_port(address)
        if at:
            given["username"] = user
        found = _chain(target, given, None if position == 0 else "", files, inner)
        hops = (*found, *hops)
        inner = (*inner, (found[-1].host.lower(), found[-1].port))
    return hops


def _split_port(address: str) -> tuple[str, dict[str, Any]]:
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), {"port": int(port)}
    return address.strip("[]"), {}


def _resolve(name: str, given: dict[str, Any], files: SshFiles) -> tuple[Hop, str]:
    """The hop as the configuration completes it, and its ProxyJump ("" for none)."""
    options = {**given, "host": name, "config": [str(files.config)] if files.config.is_file() else []}
    try:
        resolved = asyncssh.SSHClientConnectionOptions(**options)
    except (OSError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as problem:
        raise FindingError(
            error(
                "ssh_identity_unreadable",
                f"A key file for {name} cannot be used: {problem}.",
                path=name,
                fix="Correct identity in the profile or IdentityFile in ~/.ssh/config; load a key with a passphrase "
                "into your agent (ssh-add).",
            )
        ) from problem
    except ValueError as problem:
        raise FindingError(
            error("ssh_config_invalid", f"The SSH configuration for {name} cannot be read: {problem}.", path=name)
        ) from problem
    if files.known_hosts is not None:
        known: tuple[Path, ...] = (files.known_hosts,)
    else:
        listed = resolved.known_hosts if isinstance(resolved.known_hosts, list) else []
        known = tuple(Path(str(path)).expanduser() for path in listed) or (Path("~/.ssh/known_hosts").expanduser(),)
    jump = resolved.tunnel if isinstance(resolved.tunnel, str) else ""
    hop = Hop(
        name=name,
        host=str(resolved.host),
        port=int(resolved.port),
        user=str(resolved.username),
        key_name=resolved.host_key_alias or str(resolved.host),
        known_hosts=known,
        options=options,
    )
    return hop, jump


def names(files: SshFiles) -> tuple[str, ...]:
    """The host names that the configuration file lists, in its order, patterns left out."""
    try:
        text = files.config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    found: dict[str, None] = {}
    for line in text.splitlines():
        try:
            words = shlex.split(line.replace("=", " ", 1), comments=True)
        except ValueError:
            continue
        if words and words[0].lower() == "host":
            found.update((word, None) for word in words[1:] if not any(mark in word for mark in "*?!"))
    return tuple(found)
