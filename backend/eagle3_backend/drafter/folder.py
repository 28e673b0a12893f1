"""A model directory as this room sees it: names, sizes and ranges of bytes, wherever it lies."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, List, Optional, Protocol, Tuple

from eagle3_backend.findings import Finding, FindingError, error


class Folder(Protocol):
    """What a reader needs of a directory. ``path`` names it in findings.

    ``size`` and ``read`` raise FindingError for a file that must not or cannot be read, FileNotFoundError for one that
    is not there, and OSError.
    """

    path: str

    def names(self) -> List[str]:
        """Names of what lies directly in it, sorted."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file from ``offset`` on; fewer than ``length`` only at its end."""


def where(folder: Folder, name: str) -> str:
    """A file's path, as findings name it."""
    return os.path.join(folder.path, name)


def unreadable(folder: Folder, name: str, problem: OSError) -> Finding:
    """The finding about a file that the system does not give out."""
    return error("file_unreadable", f"{name} cannot be read: {problem.strerror}.", path=where(folder, name))


class LocalFolder:
    """A directory of this machine.

    Nothing outside of it is read: a link is followed when its final target is a regular file below the directory
    itself, or in the ``blobs`` that a snapshot of the hub cache shares with the other snapshots of its repository
    (``<repository>/snapshots/<revision>/<file>`` links to ``<repository>/blobs/<hash>``). The directory may be reached
    through links; it is where they lead.
    """

    def __init__(self, path: Path) -> None:
        self._root = os.path.realpath(os.path.expanduser(path))
        self._allowed = [self._root]
        blobs = _blobs_of(self._root)
        if blobs is not None:
            self._allowed.append(blobs)
        self.path = str(path)

    def names(self) -> List[str]:
        # A name that is no UTF-8 cannot be shown, nor stand in an index.
        return sorted(name for name in os.listdir(self._root) if name.isprintable())

    def size(self, name: str) -> int:
        return self._find(name)[1]

    def read(self, name: str, offset: int, length: int) -> bytes:
        with self.open(name) as file:
            file.seek(offset)
            return file.read(length)

    def open(self, name: str) -> BinaryIO:
        """The file, unbuffered. Raises as `size` does."""
        return open(self._find(name)[0], "rb", buffering=0)

    def _find(self, name: str) -> Tuple[str, int]:
        """Where a file lies and its size, when it is one that may be read."""
        place = os.path.realpath(os.path.join(self._root, name))
        if not any(place.startswith(os.path.join(root, "")) for root in self._allowed):
            raise FindingError(
                error(
                    "file_outside",
                    f"{name} lies outside of its directory, so what is read is not what a copy of it would hold.",
                    path=where(self, name),
                    expected=self._root,
                    actual=place,
                    fix="Put the file itself there, or name the directory that holds it.",
                )
            )
        status = os.stat(place)
        # To open a pipe would be to wait for whoever writes into it.
        if not stat.S_ISREG(status.st_mode):
            raise FindingError(error("file_irregular", f"{name} is no regular file.", path=where(self, name)))
        return place, status.st_size


def _blobs_of(root: str) -> Optional[str]:
    """Where the hub cache keeps the content of the snapshot that ``root`` is, or is part of; None for all others."""
    inner = Path(root)
    for folder in (inner, *inner.parents):
        if folder.parent.name == "snapshots":
            blobs = folder.parent.parent / "blobs"
            return os.path.realpath(blobs) if blobs.is_dir() else None
    return None
