"""Headers of safetensors files with the standard library alone: what is in a file, without its weights.

Format: 8 bytes little-endian length, a JSON object {name: {dtype, shape, data_offsets}}, then the data, where tensors
lie one after the other without gaps up to the end of the file (huggingface/safetensors, README and
`Metadata::validate`). What its own reader refuses is a finding here.
"""

from __future__ import annotations

import array
import json
import os
import struct
import sys
from collections import Counter
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, NoReturn, Sequence, Tuple

from eagle3_backend.findings import FindingError, error

MAX_HEADER = 32 * 1024 * 1024
"""Longest header that is read, bytes: about 300 000 tensors. The format allows 100 MB, which no known file needs."""

MAX_RANK = 32
MAX_INTEGERS = 1 << 22
"""Most values that `read_integers` returns; the largest vocabularies have 2^18."""

_DTYPES = (
    ("BOOL", "bool", 8),
    ("F4", "float4_e2m1fn_x2", 4),
    ("F6_E2M3", "float6_e2m3fn", 6),
    ("F6_E3M2", "float6_e3m2fn", 6),
    ("U8", "uint8", 8),
    ("I8", "int8", 8),
    ("F8_E5M2", "float8_e5m2", 8),
    ("F8_E4M3", "float8_e4m3fn", 8),
    ("F8_E8M0", "float8_e8m0fnu", 8),
    ("F8_E4M3FNUZ", "float8_e4m3fnuz", 8),
    ("F8_E5M2FNUZ", "float8_e5m2fnuz", 8),
    ("I16", "int16", 16),
    ("U16", "uint16", 16),
    ("F16", "float16", 16),
    ("BF16", "bfloat16", 16),
    ("I32", "int32", 32),
    ("U32", "uint32", 32),
    ("F32", "float32", 32),
    ("C64", "complex64", 64),
    ("F64", "float64", 64),
    ("I64", "int64", 64),
    ("U64", "uint64", 64),
)
"""Dtypes of the format, torch's names for them, bits of an element (safetensors 0.8.0)."""

BITS: Dict[str, int] = {torch: bits for _, torch, bits in _DTYPES}
_TORCH_NAME = {name: torch for name, torch, _ in _DTYPES}
_FORMAT_NAME = {torch: name for name, torch, _ in _DTYPES}
INTEGERS = {"bool": "B", "uint8": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
"""Dtypes that `integers_of` reads, with their codes of `array`."""

Read = Callable[[int, int], bytes]
"""Bytes of a file: read(offset, length)."""

Parse = Callable[[str, int, Read], Tuple[Dict[str, "Tensor"], Dict[str, str]]]
"""A reader of one format: (path, size of the file, read) to tensors and metadata."""


class Tensor(NamedTuple):
    """One tensor: dtype as torch names it, shape, and the bytes [start, end) of the file that holds its values.

    Without a place, or where its values do not lie in one piece, its start is its end. A named tuple, as a checkpoint
    of a large mixture of experts has 100 000 of them.
    """

    dtype: str
    shape: Tuple[int, ...]
    file: str
    start: int
    end: int


@dataclass(frozen=True)
class TensorFile:
    """The header of one file."""

    path: Path
    tensors: Dict[str, Tensor]
    metadata: Dict[str, str]


def read_header(path: Path) -> TensorFile:
    """Read and verify the header of a file. Raises FindingError as `parse_header` does, OSError."""
    with open(path, "rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return TensorFile(path, *parse_header(str(path), os.fstat(file.fileno()).st_size, read))


def parse_header(path: str, size: int, read: Read) -> Tuple[Dict[str, Tensor], Dict[str, str]]:
    """Tensors and metadata of a file of ``size`` bytes, of which ``read(offset, length)`` returns some.

    Nothing behind the header is read. Raises FindingError for a pointer, a file that is cut off or goes on behind its
    last tensor, a header that makes no sense, a name that occurs twice, and tensors that overlap or leave gaps.
    """
    fault = _Fault(path)
    head = read(0, 8)
    if head == b"version ":
        fault("lfs_pointer", "is a Git LFS pointer, not the weights", "Fetch the weights: git lfs pull.")
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    if len(head) < 8 or length > size - 8:
        fault("shard_truncated", f"ends after {size} bytes, before its header does", "Copy it again.")
    if length > MAX_HEADER:
        fault("header_oversized", f"has a header of {length} bytes; {MAX_HEADER} are read", "", length)
    entries, metadata = _parse(read(8, length), fault)
    tensors = {}
    for name, entry in entries.items():
        try:
            tensors[name] = _tensor(entry, fault.name, 8 + length)
        except (ValueError, KeyError, TypeError) as problem:
            fault("not_safetensors", f"describes {name[:200]} in no valid way ({_reason(problem)})", "")
    _check_layout(tensors, 8 + length, size, fault)
    return tensors, metadata


def read_integers(file: TensorFile, name: str) -> List[int]:
    """The values of an integer or boolean tensor of ``file``. Raises as `integers_of` does, KeyError, OSError."""
    tensor = file.tensors[name]
    with open(file.path, "rb") as handle:
        handle.seek(tensor.start)
        return integers_of(name, tensor, handle.read)


def integers_of(name: str, tensor: Tensor, read: Callable[[int], bytes]) -> List[int]:
    """The values of a tensor, of which ``read(length)`` returns the first bytes.

    Raises KeyError for a dtype that is no integer, FindingError for a tensor larger than any vocabulary and for a file
    that has become shorter.
    """
    values = array.array(INTEGERS[tensor.dtype])
    length = tensor.end - tensor.start
    if length > MAX_INTEGERS * values.itemsize:
        count = length // values.itemsize
        message = f"{name} has {count} values, more than any vocabulary, so it is not read."
        raise FindingError(error("map_oversized", message, path=name, expected=MAX_INTEGERS, actual=count))
    data = read(length)
    if len(data) != length:
        message = f"{tensor.file} became shorter while it was read."
        raise FindingError(error("shard_truncated", message, path=tensor.file, fix="Copy it again."))
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def header_bytes(tensors: Mapping[str, Tuple[str, Tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """The header of a file that holds these {name: (dtype, shape)} one after the other in this order."""
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + size_of(dtype, shape)
        header[name] = {"dtype": _FORMAT_NAME[dtype], "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def size_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor. Raises ValueError where elements do not fill whole bytes."""
    bits = BITS[dtype]
    for length in shape:
        bits *= length
    if bits % 8:
        raise ValueError(f"{dtype} {list(shape)} does not fill whole bytes")
    return bits // 8


def _parse(text: bytes, fault: _Fault) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Entries and metadata of a header. A name that occurs twice is refused, since readers differ in which one wins."""
    # A tensor takes at least 15 bytes a bracket. What has more is no header, and parsed it would be many times as long.
    if text.count(b"[") + text.count(b"{") > len(text) // 15 + 8:
        fault("not_safetensors", "has no header of that format", "")
    twice: List[str] = []

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            twice.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return members

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=_no_constant)
        check_texts(text, header)
    except (ValueError, RecursionError) as problem:
        fault("not_safetensors", f"has no readable header ({_reason(problem)})", "")
    if not isinstance(header, dict):
        fault("not_safetensors", "has a header that is no JSON object", "")
    if twice:
        fault("tensor_duplicate", f"has {twice[0][:200]} twice", "Write the file again.", path=twice[0])
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        fault("not_safetensors", "has metadata that are not texts", "")
    return header, metadata


def check_texts(text: bytes, value: Any) -> None:
    """Raise ValueError when JSON ``text`` has escapes that make ``value`` hold half a character: it cannot be shown."""
    if b"\\u" in text:
        json.dumps(value, ensure_ascii=False).encode("utf-8")


def _tensor(entry: Any, file: str, base: int) -> Tensor:
    """An entry, checked for itself. Raises ValueError, KeyError, TypeError.

    One of 100 000: nothing is called here that need not be.
    """
    format_dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = _TORCH_NAME.get(format_dtype)
    if dtype is None:
        raise ValueError(f"unknown dtype {str(format_dtype)[:40]}")
    if type(shape) is not list or len(shape) > MAX_RANK:
        raise ValueError("no shape")
    bits = BITS[dtype]
    for length in shape:
        if type(length) is not int or length < 0:
            raise ValueError(f"no length: {str(length)[:40]}")
        bits *= length
    if type(start) is not int or type(end) is not int or start < 0 or (end - start) * 8 != bits:
        raise ValueError(f"{dtype} {str(shape)[:80]} does not fill {str(start)[:40]} to {str(end)[:40]}")
    return Tensor(dtype, tuple(shape), file, base + start, base + end)


def _check_layout(tensors: Mapping[str, Tensor], position: int, size: int, fault: _Fault) -> None:
    """Tensors have to follow each other without overlap or gap, up to the last byte."""
    for tensor in sorted(tensors.values(), key=attrgetter("start", "end")):
        if tensor.start != position:
            name = next(name for name, other in tensors.items() if other is tensor)
            what = "overlaps another tensor" if tensor.start < position else "lies behind a gap"
            message = f"has a header in which {name[:200]} {what}"
            fault("offsets_invalid", message, "Write the file again.", tensor.start, position, path=name)
        position = tensor.end
    if position > size:
        fault("shard_truncated", f"is cut off: its header promises {position} bytes", "Copy it again.", size, position)
    if position < size:
        message = f"goes on {size - position} bytes behind its last tensor, which its reader refuses"
        fault("shard_oversized", message, "Copy it again.", size, position)


class _Fault:
    """Raises the finding about one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.name = os.path.basename(path)

    def __call__(
        self, code: str, what: str, fix: str, actual: Any = None, expected: Any = None, path: str = ""
    ) -> NoReturn:
        place = path or self._path
        raise FindingError(error(code, f"{self.name} {what}.", path=place, expected=expected, actual=actual, fix=fix))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:200]
