"""What a file of ``torch.save`` holds, without loading it.

The format since torch 1.6 is a zip archive: ``<root>/data.pkl`` describes the tensors and ``<root>/data/<key>`` is the
storage behind some of them, byte for byte (pytorch/pytorch, torch/serialization.py).
"""

from __future__ import annotations

import os
import struct
from typing import Any, Dict, NoReturn, Tuple

from eagle3_backend.drafter.opcodes import View, walk
from eagle3_backend.drafter.tensorfile import BITS, MAX_RANK, Read, Tensor, size_of
from eagle3_backend.findings import FindingError, error

MAX_PICKLE = 2 * 1024 * 1024
"""Longest description that is followed, bytes: about 10 000 tensors."""

MAX_DIRECTORY = 8 * 1024 * 1024
"""Longest table of contents of an archive, bytes."""

CONVERT = "Write the weights as safetensors with the tool that made them."


def parse_pickled(path: str, size: int, read: Read) -> Tuple[Dict[str, Tensor], Dict[str, str]]:
    """Tensors of a file of ``size`` bytes, of which ``read(offset, length)`` returns some; the metadata are empty.

    A tensor whose values do not lie in one piece has no bytes: its start is its end. Raises FindingError for a pointer,
    a file that is cut off, of the format before torch 1.6 or no state dict, and for one that is more than tensors.
    """
    head = read(0, 8)
    if head == b"version ":
        _refuse("lfs_pointer", path, "is a Git LFS pointer, not the weights", "Fetch the weights: git lfs pull.")
    if head[:1] == b"\x80":
        _refuse("pickle_legacy", path, "is of the format before torch 1.6, whose tensors nothing lists", CONVERT)
    archive = _Archive(path, size, read)
    try:
        found = walk(archive.description)
    except ValueError as problem:
        _refuse("weights_unreadable", path, f"is no state dict ({str(problem)[:200]})", CONVERT)
    if found.foreign:
        names = ", ".join(found.foreign)
        message = f"is more than tensors: to load it would be to call {names}, which engines refuse"
        _refuse("pickle_unsafe", path, message, CONVERT, found.foreign)
    views = found.value if isinstance(found.value, dict) else {}
    views = {name: view for name, view in views.items() if isinstance(view, View)}
    if not views:
        _refuse("weights_missing", path, "has no tensors at its top, where engines look for them", CONVERT)
    return {name: archive.tensor(name, view) for name, view in views.items()}, {}


class _Archive:
    """Table of contents and description of one file. Raises FindingError."""

    def __init__(self, path: str, size: int, read: Read) -> None:
        # Imported here, as a reader of safetensors need not wait for them.
        import zipfile
        import zlib

        self._path, self._size, self._read = path, size, read
        try:
            with zipfile.ZipFile(_Ranges(size, read)) as archive:
                self._entries = {entry.filename: entry for entry in archive.infolist()}
                (description,) = [name for name in self._entries if name.count("/") == 1 and name.endswith("/data.pkl")]
                self._root = description[: -len("data.pkl")]
                self.description = self._content(archive, description)
                order = f"{self._root}byteorder"
                if order in self._entries and self._content(archive, order) == b"big":
                    _refuse("weights_unreadable", path, "was written on a big-endian machine", CONVERT)
        except (zipfile.BadZipFile, EOFError, _BeforeStart) as problem:
            _refuse("shard_truncated", path, f"is cut off ({problem})", "Copy it again.")
        except (ValueError, KeyError, RuntimeError, OverflowError, struct.error, zlib.error) as problem:
            _refuse("weights_unreadable", path, f"is no archive of torch ({str(problem)[:200]})", CONVERT)

    def tensor(self, name: str, view: View) -> Tensor:
        """Where the values of a view lie."""
        file = os.path.basename(self._path)
        dtype, offset, shape, stride = view.dtype, view.offset, view.shape, view.stride
        if not _sizes(shape) or not _sizes(stride) or not _sizes((offset,)):
            _refuse("weights_unreadable", self._path, f"describes {name[:200]} in no valid way", CONVERT)
        if not _in_one_piece(shape, stride):
            return Tensor(dtype, shape, file, 0, 0)
        base, length = self._storage(name, view)
        start = offset * BITS[dtype] // 8
        end = start + size_of(dtype, shape)
        if end > length:
            _refuse(
                "shard_truncated", self._path, f"has fewer bytes than {name[:200]} needs", "Copy it again.", length, end
            )
        return Tensor(dtype, shape, file, base + start, base + end)

    def _storage(self, name: str, view: View) -> Tuple[int, int]:
        """Where a storage begins in the file, and its length in bytes."""
        entry = self._entries.get(f"{self._root}data/{view.storage.key}")
        if entry is None or entry.compress_type != 0:
            _refuse("weights_unreadable", self._path, f"has no plain bytes for {name[:200]}", CONVERT)
        # The name's and the extra field's lengths of the local header, which may differ from the table's.
        header = self._read(entry.header_offset, 30)
        if header[:4] != b"PK\x03\x04" or len(header) < 30:
            _refuse(
                "shard_truncated", self._path, f"has no entry where that of {name[:200]} should be", "Copy it again."
            )
        start = entry.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
        if start + entry.file_size > self._size:
            _refuse("shard_truncated", self._path, "is cut off", "Copy it again.")
        return start, entry.file_size

    def _content(self, archive: Any, name: str) -> bytes:
        with archive.open(name) as entry:
            content: bytes = entry.read(MAX_PICKLE + 1)
        if len(content) > MAX_PICKLE:
            raise ValueError(f"{name} has more than {MAX_PICKLE} bytes")
        return content


class _BeforeStart(OSError):
    """Where a file refuses to be positioned: `zipfile` expects an OSError there."""


class _Ranges:
    """A file made of ranged reads, as `zipfile` wants one."""

    def __init__(self, size: int, read: Read) -> None:
        self._size, self._read, self._position = size, read, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if position < 0:
            raise _BeforeStart(f"it points to {-position} bytes before its start")
        self._position = position
        return position

    def read(self, length: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        length = left if length < 0 else min(length, left)
        if length > MAX_DIRECTORY:
            raise ValueError(f"its table of contents has {length} bytes")
        data = self._read(self._position, length)
        self._position += len(data)
        return data


def _sizes(numbers: Any) -> bool:
    return (
        isinstance(numbers, tuple)
        and len(numbers) <= MAX_RANK
        and all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
    )


def _in_one_piece(shape: Tuple[int, ...], stride: Tuple[int, ...]) -> bool:
    """Whether values lie in the order of the shape without anything between them."""
    if 0 in shape:
        return True
    step = 1
    for length, distance in zip(reversed(shape), reversed(stride)):
        if length > 1 and distance != step:
            return False
        step *= length
    return len(shape) == len(stride)


def _refuse(code: str, path: str, what: str, fix: str, actual: Any = None, expected: Any = None) -> NoReturn:
    message = f"{os.path.basename(path)} {what}."
    raise FindingError(error(code, message, path=path, fix=fix, actual=actual, expected=expected))
