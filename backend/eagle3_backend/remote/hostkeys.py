"""Host keys: who a host is. Unknown keys ask once, changed keys stop everything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from eagle3_backend.findings import Finding, error, warning


@dataclass(frozen=True)
class OfferedKey:
    """The key that a host showed: ``key`` is its OpenSSH text (``ssh-ed25519 AAAA…``)."""

    host: str
    port: int
    key: str

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    @property
    def line(self) -> str:
        """Its line for a known_hosts file."""
        return f"{_listed_name(self.host, self.port)} {self.key}"


class KnownHosts:
    """The entries of known_hosts text. A line that cannot be read is passed over, as OpenSSH does."""

    def __init__(self, text: str) -> None:
        self._entries = asyncssh.SSHKnownHosts()
        for line in text.splitlines():
            try:
                self._entries.load(line)
            except ValueError:
                continue

    def listed(self, host: str, port: int) -> list[asyncssh.SSHKey]:
        """The keys under exactly this host and port."""
        return list(self._entries.match(_listed_name(host, port), "", None)[0])

    def match(self, host: str, port: int) -> tuple[list, ...]:
        """What asyncssh wants of its ``known_hosts`` callable: host keys, CA keys, revoked keys, X.509 lists.

        The address is not looked at (OpenSSH's CheckHostIP is off since 8.5): rented machines share addresses.
        """
        found = self._entries.match(_listed_name(host, port), "", None)
        if port != 22 and not found[0] and not found[1]:
            found = self._entries.match(host, "", None)
        return tuple(list(part) for part in found)


def _listed_name(host: str, port: int) -> str:
    return host if port == 22 else f"[{host}]:{port}"


def fingerprint(key: str) -> str:
    """``SHA256:…`` of an OpenSSH public key, as ssh-keygen -l shows it."""
    return asyncssh.import_public_key(key).get_fingerprint()


def judge(known_hosts: str, host: str, port: int, key: str, name: str = "") -> Finding | None:
    """What known_hosts text says of the key that ``host`` offers: None when it is the known one.

    An unknown host is `ssh_host_key_unknown` (a question), another key than the listed one `ssh_host_key_changed`.
    ``name`` is the profile's host on the way to which the key was met; it may be a jump host's.
    """
    known = KnownHosts(known_hosts)
    offered = asyncssh.import_public_key(key)
    keys, _, revoked, *_ = known.match(host, port)
    shown = offered.get_fingerprint()
    name, listed_name = name or host, _listed_name(host, port)
    if offered in revoked:
        return error(
            "ssh_host_key_revoked",
            f"{listed_name} offers the key {shown}, which known_hosts marks as revoked.",
            path=host,
            actual=shown,
            fix="Do not connect. Ask whoever runs the host.",
        )
    if offered in keys:
        return None
    listed = known.listed(host, port)
    if not listed:
        return warning(
            "ssh_host_key_unknown",
            f"{listed_name} is not in known_hosts. It offers the {offered.get_algorithm()} key {shown}.",
            path=host,
            actual=shown,
            fix=f"Compare the fingerprint with the one the provider shows, then: eagle3-tui hosts trust {name}",
        )
    same_kind = [entry for entry in listed if entry.get_algorithm() == offered.get_algorithm()] or listed
    expected = same_kind[0].get_fingerprint()
    return error(
        "ssh_host_key_changed",
        f"The host key of {listed_name} has changed: known_hosts has {expected}, the host offers {shown}. "
        "Someone may be in between, or the machine was replaced. Nothing was sent.",
        path=host,
        expected=expected,
        actual=shown,
        fix=f"If the machine was replaced: eagle3-tui hosts rebind {name}",
    )


def read_text(paths: Sequence[Path]) -> str:
    """All known_hosts files as one text; absent ones are empty."""
    texts = []
    for path in paths:
        try:
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)


def append(path: Path, line: str) -> None:
    """Add one line to a known_hosts file. A symbolic link in its place is refused with OSError (O_NOFOLLOW)."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")


def rebind(path: Path, offered: OfferedKey) -> None:
    """Replace every key that ``path`` lists for this host by the offered one: the operator has said so by name.

    Other hosts on a shared line, comments and lines that cannot be read stay as they are. Raises OSError.
    """
    name = _listed_name(offered.host, offered.port)
    kept = []
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if path.exists() else []:
        rest = _without(line, name)
        if rest is not None:
            kept.append(rest)
    temporary = path.with_name(path.name + ".eagle3-new")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(line + "\n" for line in [*kept, offered.line])
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _without(line: str, name: str) -> str | None:
    """The known_hosts line with ``name`` taken out of its hosts; None when nothing is left of it."""
    hosts, _, data = line.strip().partition(" ")
    if not data or hosts.startswith(("#", "@")):
        return line
    try:
        entry = asyncssh.import_known_hosts(line)
    except ValueError:
        return line
    if not entry.match(name, "", None)[0] or any(mark in hosts for mark in "*?!"):
        return line
    others = [] if hosts.startswith("|") else [host for host in hosts.split(",") if host != name]
    return f"{','.join(others)} {data}" if others else None
