"""Weight files of a few bytes, right and wrong."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.tensorfile import header_bytes, size_of


def write_safetensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> Path:
    """A file of {name: (dtype, shape)} or {name: (dtype, shape, values as bytes)}; without values they are zero."""
    header = header_bytes({name: tuple(entry[:2]) for name, entry in tensors.items()}, metadata or {})
    values = [entry[2] if len(entry) > 2 else bytes(size_of(*entry)) for entry in tensors.values()]
    path.write_bytes(header + b"".join(values))
    return path


def write_raw(path: Path, header: bytes, data: bytes = b"") -> Path:
    """A file with a header that nobody has checked."""
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def write_index(folder: Path, places: Any, name: str = "model.safetensors.index.json") -> None:
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def text(value: str) -> bytes:
    """A text as pickle opcodes; `number` and `numbers` likewise."""
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def pickled_tensor(storage: str, key: str, shape: Sequence[int], stride: Sequence[int], offset: int = 0) -> bytes:
    """A tensor as torch.save describes it."""
    what = b"(" + text("storage") + f"ctorch\n{storage}\n".encode() + text(key) + text("cpu") + number(0) + b"tQ"
    rest = number(offset) + numbers(shape) + numbers(stride) + b"\x89" + b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + what + rest + b"tR"


def write_pickled(path: Path, tensors: Mapping[str, bytes], storages: Mapping[str, bytes], **options: Any) -> Path:
    """A file as torch.save writes it, of opcodes {name: those that make its tensor} and the storages by key."""
    items = b"".join(text(name) + opcodes for name, opcodes in tensors.items())
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02ccollections\nOrderedDict\n)R(" + items + b"u.")
        archive.writestr("archive/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return path


class CountingFolder(LocalFolder):
    """Remembers the ranges that were read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.ranges: list[tuple[str, int, int]] = []

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.ranges.append((name, offset, length))
        return super().read(name, offset, length)


@pytest.fixture
def weights() -> SimpleNamespace:
    """The helpers of this file."""
    return SimpleNamespace(
        safetensors=write_safetensors,
        raw=write_raw,
        index=write_index,
        pickled=write_pickled,
        pickled_tensor=pickled_tensor,
        text=text,
        counting=CountingFolder,
    )
