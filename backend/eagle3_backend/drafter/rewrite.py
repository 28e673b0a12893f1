"""Writes a safetensors file out of the tensors of others: a new header, and the values copied from file to file.

No value is loaded or cast: a drafter of any size takes the time of a copy, and no memory.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Collection, Dict, Mapping, NamedTuple, Optional, Tuple, Union

from eagle3_backend.drafter.folder import LocalFolder, where
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.drafter.tensorfile import BITS, Tensor, header_bytes, size_of
from eagle3_backend.findings import FindingError, Severity, error

KERNEL_BYTES = 1 << 28
"""Most bytes that the kernel is asked to copy at once: between two such calls an interrupt is heard."""

LOOP_BYTES = 1 << 20
"""Bytes that are copied at once where the kernel does not do it."""

_NOT_THERE = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)
"""What `copy_file_range` says where a kernel, a file system or a sandbox has no such thing."""


class Values(NamedTuple):
    """A tensor that is made: dtype as torch names it, shape, and its values, little-endian, row by row."""

    dtype: str
    shape: Tuple[int, ...]
    data: bytes


class Taken(NamedTuple):
    """A tensor that a file of this machine holds."""

    folder: LocalFolder
    tensor: Tensor

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.tensor.shape


Source = Union[Values, Taken]


def taken(inventory: Inventory, name: str) -> Taken:
    """A tensor to copy. Raises KeyError, and FindingError when its values cannot be copied as they are."""
    tensor, folder = inventory.tensors[name], inventory.folder
    if not isinstance(folder, LocalFolder):
        raise FindingError(error("weights_elsewhere", f"The values of {name} are not on this machine.", path=name))
    if tensor.end - tensor.start != size_of(tensor.dtype, tensor.shape):
        message = f"The values of {name} do not lie in one piece, so they cannot be copied as they are."
        fix = "Write the weights as safetensors with the tool that made them."
        raise FindingError(error("tensor_scattered", message, path=name, fix=fix))
    return Taken(folder, tensor)


def rewrite(
    inventory: Inventory,
    destination: Path,
    names: Optional[Mapping[str, str]] = None,
    drop: Collection[str] = (),
    add: Optional[Mapping[str, Source]] = None,
) -> None:
    """Write the tensors of ``inventory`` into one file, renamed by ``names`` {old: new}.

    Those in ``drop`` (old names) are left out; those in ``add`` (new names) come from elsewhere. The file appears under
    its name when it is whole and on the disk, or not at all. Raises OSError, and FindingError when the inventory is not
    whole, when two tensors would have one name, or when there is no room.
    """
    if not inventory.whole:
        raise FindingError(*(finding for finding in inventory.findings if finding.severity is Severity.ERROR))
    names = names or {}
    kept = [(names.get(name, name), taken(inventory, name)) for name in inventory.tensors if name not in drop]
    sources: Dict[str, Source] = {}
    for name, source in [*kept, *(add or {}).items()]:
        if name in sources:
            message = f"Two tensors would be called {name}, and one of them would be lost."
            raise FindingError(error("tensor_duplicate", message, path=name))
        if isinstance(source, Values) and len(source.data) != size_of(source.dtype, source.shape):
            raise ValueError(f"{len(source.data)} bytes for {name}, {source.dtype} {list(source.shape)}")
        sources[name] = source
    _write(destination, sources, {**inventory.metadata, "format": "pt"})


def _write(destination: Path, sources: Mapping[str, Source], metadata: Mapping[str, str]) -> None:
    # The widest first, as safetensors has them: so every tensor is aligned to its elements.
    order = sorted(sources, key=lambda name: (-BITS[sources[name].dtype], name))
    header = header_bytes({name: (sources[name].dtype, sources[name].shape) for name in order}, metadata)
    _check_room(destination, len(header) + sum(size_of(source.dtype, source.shape) for source in sources.values()))
    part = destination.with_name(f".{destination.name}.{os.getpid()}.part")
    try:
        with open(part, "wb", buffering=0) as file, ExitStack() as opened:
            _write_all(file.fileno(), header)
            handles: Dict[Tuple[str, str], int] = {}
            for source in (sources[name] for name in order):
                if isinstance(source, Values):
                    _write_all(file.fileno(), source.data)
                    continue
                place = (source.folder.path, source.tensor.file)
                if place not in handles:
                    handles[place] = opened.enter_context(source.folder.open(source.tensor.file)).fileno()
                _copy(handles[place], file.fileno(), source)
            os.fsync(file.fileno())
        os.replace(part, destination)
    finally:
        part.unlink(missing_ok=True)
    _sync(destination.parent)


def _copy(handle: int, target: int, source: Taken) -> None:
    """Append the values of a tensor to ``target``."""
    position, end = source.tensor.start, source.tensor.end
    while position < end:
        moved = _move(handle, target, position, end - position)
        if moved == 0:
            file = source.tensor.file
            message = f"{file} became shorter while it was copied."
            raise FindingError(error("shard_truncated", message, path=where(source.folder, file)))
        position += moved


def _move(handle: int, target: int, position: int, length: int) -> int:
    """Copy some bytes, within the kernel where it can: their number, 0 at the end of the file."""
    if hasattr(os, "copy_file_range"):
        try:
            moved = os.copy_file_range(handle, target, min(length, KERNEL_BYTES), position)
        except OSError as problem:
            if problem.errno not in _NOT_THERE:
                raise
            moved = 0
        if moved:
            return moved
    return _write_all(target, os.pread(handle, min(length, LOOP_BYTES), position))


def _write_all(target: int, data: bytes) -> int:
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]
    return len(data)


def _check_room(destination: Path, needed: int) -> None:
    free = shutil.disk_usage(destination.parent).free
    if free < needed:
        message = f"{destination.name} takes {needed} bytes, and {destination.parent} has room for {free}."
        fix = "Make room, or write to another disk."
        finding = error(
            "disk_space_insufficient", message, path=str(destination), expected=needed, actual=free, fix=fix
        )
        raise FindingError(finding)


def _sync(directory: Path) -> None:
    """Bring the new name to the disk, too."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
