"""The link to a host: a seam that SSH, a transport command and the embedded host all make."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eagle3_backend.findings import FindingError, error

CHUNK = 256 * 1024
"""Bytes asked for by one read of a stream."""

ERROR_TAIL = 8 * 1024
"""Bytes of a stream's standard error that are kept for findings."""


def last_words(said: bytes) -> str:
    """The end of what a command said, on one line: remote text, at most 400 characters."""
    return " ".join(said.decode("utf-8", "replace").split())[-400:]


class LinkLost(Exception):
    """The host cannot be spoken to any more; nothing is known about what goes on there."""


@dataclass(frozen=True)
class Completed:
    """A finished command. ``exit_status`` is None when a signal ended it."""

    exit_status: int | None
    stdout: bytes
    stderr: bytes

    def complaint(self) -> str:
        """The last words of the command, for a finding."""
        return last_words(self.stderr or self.stdout)


class Stream(Protocol):
    """A running command: bytes in, bytes out."""

    async def read(self, limit: int) -> bytes:
        """At most ``limit`` bytes of standard output, b"" at its end. Raises LinkLost."""

    async def write(self, data: bytes) -> None:
        """Write to standard input, waiting while the far end does not read. Raises LinkLost."""

    async def close(self) -> None:
        """End standard input and let the stream go; a command that reads it ends by itself."""

    def complaint(self) -> str:
        """The tail of standard error, as text."""


class Link(Protocol):
    """A host within reach. Commands are run by a POSIX shell there."""

    closed: asyncio.Event

    async def run(self, command: str, input: bytes = b"", timeout: float = 30.0) -> Completed:
        """Run a command to its end. Raises LinkLost, TimeoutError after ``timeout`` seconds, FindingError."""

    async def open(self, command: str) -> Stream:
        """Start a long-lived command. Raises LinkLost, FindingError."""

    async def put(self, source: Path | bytes, remote_path: str) -> None:
        """Write a file (mode 0600), and the folders above it: beside, then renamed. Raises LinkLost, FindingError."""

    async def forward(self, remote_port: int, local_port: int = 0) -> int:
        """Let 127.0.0.1:``local_port`` (0: any free one) reach 127.0.0.1:``remote_port`` there; the local port."""

    async def close(self) -> None:
        """Let the link go; what runs detached on the host is not touched."""


def shell(script: str, *arguments: str) -> str:
    """One command line that runs ``script`` under sh, whatever the login shell is; arguments are $1, $2, …"""
    return " ".join(["exec", "sh", "-c", shlex.quote(script), "sh", *map(shlex.quote, arguments)])


def write_failed(remote_path: str, reason: str) -> FindingError:
    return FindingError(
        error(
            "remote_write_failed",
            f"The host could not write {remote_path}: {reason}",
            path=remote_path,
            fix="Make room there, or name a workspace that the login may write to.",
        )
    )


async def put_by_cat(link: Link, source: Path | bytes, remote_path: str) -> None:
    """`Link.put` through a command, for hosts without SFTP."""
    data = source if isinstance(source, bytes) else await asyncio.to_thread(source.read_bytes)
    done = await link.run(shell(_PUT, remote_path, str(len(data))), data, timeout=600.0)
    if done.exit_status != 0:
        raise write_failed(remote_path, done.complaint() or f"exit {done.exit_status}")


# A link that is cut looks like the end of the file to `cat`: only the size tells.
_PUT = (
    'umask 077; t="$1.$$"; mkdir -p "${1%/*}" && '
    '{ cat > "$t" && [ $(($(wc -c < "$t"))) -eq "$2" ] && mv -f "$t" "$1" || { rm -f "$t"; exit 1; }; }'
)
