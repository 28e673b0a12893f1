"""Headers of safetensors files with the standard library alone: what is in a file, without its weights.

Format: 8 bytes little-endian length, a JSON object {name: {dtype, shape, data_offsets}}, then the data
(huggingface/safetensors README).
"""

from __future__ import annotations

import array
import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from eagle3_backend.findings import FindingError, error

MAX_HEADER = 100 * 1024 * 1024
"""Longest header that is read, bytes (the format's own limit)."""

DTYPE_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}
_ARRAY_CODES = {"BOOL": "B", "U8": "B", "I8": "b", "I16": "h", "I32": "i", "I64": "q"}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: dtype as the format names it, shape, and where its bytes lie in the file."""

    dtype: str
    shape: Tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class TensorFile:
    """The header of one file."""

    path: Path
    tensors: Dict[str, TensorEntry]
    metadata: Dict[str, str]


def read_header(path: Path) -> TensorFile:
    """Read and verify a header. Raises FindingError for a pointer, a cut-off file or one that is not safetensors."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(8)
        if head.startswith(b"version "):
            raise FindingError(_broken("lfs_pointer", path, "is a Git LFS pointer, not the weights", "git lfs pull"))
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else MAX_HEADER + 1
        if length > min(MAX_HEADER, size - 8):
            raise FindingError(_broken("shard_truncated", path, "ends before its header does", "Copy it again."))
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {})
            tensors = {name: _entry(value, 8 + length) for name, value in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise FindingError(_broken("not_safetensors", path, f"has no readable header ({problem})", "")) from problem
    end = max([entry.end for entry in tensors.values()], default=8 + length)
    if end > size:
        message = f"is cut off: {size} bytes, its header promises {end}"
        raise FindingError(_broken("shard_truncated", path, message, "Copy it again."))
    return TensorFile(path, tensors, metadata)


def read_integers(file: TensorFile, name: str) -> List[int]:
    """The values of a small integer or boolean tensor. Raises KeyError for another dtype or an unknown name."""
    entry = file.tensors[name]
    values = array.array(_ARRAY_CODES[entry.dtype])
    with open(file.path, "rb") as handle:
        handle.seek(entry.start)
        values.frombytes(handle.read(entry.end - entry.start))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def header_bytes(tensors: Mapping[str, Tuple[str, Tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """The header of a file that holds these {name: (dtype, shape)} one after the other in this order."""
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + _bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _entry(value: Mapping[str, Any], base: int) -> TensorEntry:
    shape = tuple(int(size) for size in value["shape"])
    start, end = value["data_offsets"]
    if end - start != _bytes(value["dtype"], shape) or start < 0:
        raise ValueError(f"{end - start} bytes for {value['dtype']} {list(shape)}")
    return TensorEntry(value["dtype"], shape, base + start, base + end)


def _bytes(dtype: str, shape: Tuple[int, ...]) -> int:
    count = DTYPE_BYTES[dtype]
    for size in shape:
        count *= size
    return count


def _broken(code: str, path: Path, what: str, fix: str) -> Any:
    return error(code, f"{path.name} {what}.", path=str(path), fix=fix)
