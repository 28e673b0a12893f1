"""What weights a model directory holds: names, dtypes, shapes and places of all tensors, from headers alone."""

from __future__ import annotations

import array
import base64
import sys
import zlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.drafter.folder import Folder, unreadable
from eagle3_backend.drafter.tensorfile import INTEGERS, MAX_INTEGERS, Tensor, integers_of, size_of
from eagle3_backend.drafter.weightfiles import read_weights
from eagle3_backend.findings import Finding, FindingError, Severity, error

MAPS = ("d2t", "t2d")
"""Tensors whose values travel with an inventory."""

MAX_PACKED = 512 * 1024
"""Longest packed map that travels, bytes. A map's ids rise, so that that of the largest vocabulary takes a third."""


@dataclass(frozen=True)
class Inventory:
    """The tensors of a directory by name, the files that hold them with their sizes in bytes, and what is wrong.

    ``folder`` is where they were read; without it, names, shapes and the values in ``held`` are all there is.
    """

    tensors: Dict[str, Tensor]
    files: Dict[str, int] = field(default_factory=dict)
    metadata: Dict[str, str] = field(default_factory=dict)
    findings: Tuple[Finding, ...] = ()
    folder: Optional[Folder] = field(default=None, compare=False, repr=False)
    held: Mapping[str, List[int]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def whole(self) -> bool:
        """False when a file could not be read, so that a tensor may be there although it is not listed."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    def integers(self, name: str) -> Optional[List[int]]:
        """Values of a tensor of integers or booleans, read now. None when there is none of that name and kind, or when
        only its shape is known. Raises FindingError when they cannot be read."""
        tensor, folder = self.tensors.get(name), self.folder
        if name in self.held:
            return self.held[name]
        if tensor is None or tensor.dtype not in INTEGERS or folder is None:
            return None
        file, start = tensor.file, tensor.start
        if tensor.end - start != size_of(tensor.dtype, tensor.shape):
            return None
        try:
            return integers_of(name, tensor, lambda length: folder.read(file, start, length))
        except OSError as problem:
            raise FindingError(unreadable(folder, file, problem)) from problem

    def to_json(self) -> Dict[str, Any]:
        """All of it but the folder, with the values of both maps packed: what goes from a host to a laptop."""
        findings, held = list(self.findings), {}
        for name in MAPS:
            try:
                values = self.integers(name)
            except FindingError as problem:
                findings += problem.findings
                continue
            packed = _pack(values or [])
            if len(packed) > MAX_PACKED:
                message = f"The values of {name} are in no order, as those of a map are; they are not told."
                findings.append(error("map_oversized", message, path=name, expected=MAX_PACKED, actual=len(packed)))
            elif values is not None:
                held[name] = packed
        return {
            "tensors": {name: list(tensor) for name, tensor in self.tensors.items()},
            "files": self.files,
            "metadata": self.metadata,
            "findings": [finding.to_json() for finding in findings],
            "held": held,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Inventory:
        """Rebuild an inventory from `to_json`."""
        return cls(
            {
                name: Tensor(dtype, tuple(shape), file, start, end)
                for name, (dtype, shape, file, start, end) in data["tensors"].items()
            },
            dict(data["files"]),
            dict(data["metadata"]),
            tuple(map(Finding.from_json, data["findings"])),
            held={name: _unpack(text) for name, text in data["held"].items()},
        )

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Sequence[Any]]) -> Inventory:
        """An inventory of names, dtypes and shapes alone: {name: [dtype, shape]}."""
        return cls({name: Tensor(dtype, tuple(shape), "", 0, 0) for name, (dtype, shape) in manifest.items()})


def read_inventory(folder: Folder) -> Inventory:
    """List the weights of a directory. What is wrong with them is in its findings; nothing is raised for it."""
    return Inventory(*read_weights(folder), folder)


def _pack(values: List[int]) -> str:
    return base64.b64encode(zlib.compress(_little(array.array("q", values)).tobytes())).decode("ascii")


def _unpack(text: str) -> List[int]:
    values = array.array("q")
    values.frombytes(zlib.decompressobj().decompress(base64.b64decode(text), MAX_INTEGERS * values.itemsize))
    return _little(values).tolist()


def _little(values: array.array[int]) -> array.array[int]:
    """Values whose bytes, or bytes whose values, are little-endian on any machine."""
    if sys.byteorder == "big":
        values.byteswap()
    return values
