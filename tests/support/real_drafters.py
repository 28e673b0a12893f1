"""A drafter directory with its weights, as a `Checkpoint` of `drafters` that faults can be put into."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import read_inventory
from eagle3_backend.drafter.tensorfile import header_bytes, size_of


def reader(drafters: ModuleType) -> Any:
    """``read(directory) -> checkpoint``, over the classes of the module `drafters`."""

    @dataclass
    class RealCheckpoint(drafters.Checkpoint):  # type: ignore[name-defined,misc]
        """``data`` holds each tensor's bytes; where a fault changes a tensor, zeros are written instead."""

        data: dict[str, tuple[tuple[str, tuple[int, ...]], bytes]] = field(default_factory=dict)

        def copy(self) -> RealCheckpoint:
            bare = RealCheckpoint(json.loads(json.dumps(self.config)), dict(self.tensors), dict(self.values))
            bare.data = self.data
            return bare

        def reverse_rows(self, name: str) -> None:
            """Give a matrix other values of the same kind: its rows from the last to the first."""
            (dtype, shape), data = self.data[name]
            row = len(data) // shape[0]
            rows = [data[start : start + row] for start in range(0, len(data), row)]
            self.data = {**self.data, name: ((dtype, shape), b"".join(reversed(rows)))}

        def file(self) -> bytes:
            header, pieces = header_bytes(self.tensors, {"format": "pt"}), []
            for name, entry in self.tensors.items():
                known, data = self.data.get(name, (None, b""))
                if name in self.values and entry[0] in drafters.CODES:
                    data = drafters.packed(entry[0], self.values[name])
                elif known != entry:
                    data = bytes(size_of(*entry))
                pieces.append(data)
            return header + b"".join(pieces)

    def read(directory: Path) -> RealCheckpoint:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        inventory = read_inventory(LocalFolder(directory))
        checkpoint = RealCheckpoint(config, {})
        for name, tensor in inventory.tensors.items():
            entry = (tensor.dtype, tensor.shape)
            with open(directory / tensor.file, "rb") as file:
                file.seek(tensor.start)
                checkpoint.data[name] = (entry, file.read(tensor.end - tensor.start))
            checkpoint.tensors[name] = entry
            if name in ("d2t", "t2d"):
                checkpoint.values[name] = list(inventory.integers(name))
        return checkpoint

    return read
