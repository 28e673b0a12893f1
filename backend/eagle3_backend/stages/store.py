"""The hidden-state store: packed safetensors shards with an index, and a stamp that says what the states are.

One shard holds many rows of one split:

    aux        [N, A * H]  the streams entering the aux layers, ascending, side by side
    last       [N, H]      the stream before the target's final norm
    token_ids  [N] int64   loss_mask [N] uint8 (1 = sampled by the target)
    row        [R, 3] int64: (row number in the split's jsonl, offset, length T)

The last sampled token of a row was never an input, so it has no states: position T-1 of `aux` and `last` is zero and is
never used as an input or a teacher. The stamp stands in `store.json` and in every shard; a store whose stamp is not the
wanted one is an error, since states of other layers or of another revision train without complaint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.artifacts import write_json

VERSION = 1
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class Stamp:
    """What the states are. Two stores may be read together only when their stamps are equal.

    ``layer_ids`` are canonical: id i is the stream entering layer i. ``last`` is always ``pre_norm`` here. ``adopted``
    names the directory of another tool's files that states were taken from.
    """

    target: str
    revision: str
    layer_ids: tuple[int, ...]
    hidden_size: int
    dtype: str
    tokenizer_hash: str
    template_hash: str
    engine: str
    last: str = "pre_norm"
    codec: str = "raw"
    version: int = VERSION
    adopted: str = ""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Stamp:
        return cls(**{**data, "layer_ids": tuple(data["layer_ids"])})


@dataclass(frozen=True)
class Row:
    """One conversation row; the tensors are views of the mapped shard. Shapes: [T], [T], [T, A * H], [T, H]."""

    index: int
    token_ids: torch.Tensor
    loss_mask: torch.Tensor
    aux: torch.Tensor
    last: torch.Tensor


class Store:
    """A whole store, opened for reading."""

    def __init__(self, directory: Path, stamp: Stamp, splits: dict[str, Any]) -> None:
        self.directory = directory
        self.stamp = stamp
        self.splits = splits

    def rows(self, split: str) -> list[Row]:
        """The rows of a split in the order of its jsonl. Raises FindingError for a damaged shard."""
        found: list[Row] = []
        for shard in self.splits.get(split, {}).get("shards", []):
            found += _rows_of(_load_shard(self.directory / shard["file"], self.stamp))
        return sorted(found, key=lambda row: row.index)


def open_store(directory: Path, expected: Stamp | None = None) -> Store:
    """Open a store. Raises FindingError when it is not one, or when its stamp is not the expected one."""
    try:
        data = json.loads((directory / "store.json").read_text(encoding="utf-8"))
        stamp = Stamp.from_json(data["stamp"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise FindingError(
            error(
                "store_unreadable",
                f"There is no readable hidden-state store in {directory}: {problem}.",
                path=str(directory),
                fix="Run extract again.",
            )
        ) from problem
    if expected is not None and stamp != expected:
        raise FindingError(_stamp_differs(directory / "store.json", expected, stamp))
    return Store(directory, stamp, data["splits"])


def _stamp_differs(path: Path, expected: Stamp, actual: Stamp) -> Finding:
    wanted, found = asdict(expected), asdict(actual)
    names = [name for name in wanted if wanted[name] != found[name]]
    return error(
        "store_stamp_mismatch",
        f"The hidden states were made differently: {', '.join(names)}.",
        path=str(path),
        expected={name: wanted[name] for name in names},
        actual={name: found[name] for name in names},
        fix="Extract the states again for this target.",
    )


def _load_shard(path: Path, stamp: Stamp) -> dict[str, torch.Tensor]:
    """The tensors of a shard, mapped rather than read. Raises FindingError."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in ("aux", "last", "token_ids", "loss_mask", "row")}
        found = Stamp.from_json(json.loads(metadata["stamp"]))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        raise FindingError(_unreadable_shard(path, problem)) from problem
    if found != stamp:
        raise FindingError(_stamp_differs(path, stamp, found))
    return tensors


def _unreadable_shard(path: Path, problem: Exception) -> Finding:
    if not path.exists():
        return error("shard_missing", f"The shard {path.name} is not there.", path=path.name, fix="Run extract again.")
    with open(path, "rb") as file:
        pointer = file.read(40).startswith(b"version https://git-lfs")
    if pointer:
        return error(
            "lfs_pointer",
            f"{path.name} is a Git LFS pointer, not the file itself.",
            path=path.name,
            fix="Fetch the real file, or run extract again.",
        )
    return error(
        "shard_truncated",
        f"The shard {path.name} cannot be read: {problem}.",
        path=path.name,
        actual=path.stat().st_size,
        fix="Run extract again; whole shards are kept.",
    )


def _rows_of(tensors: dict[str, torch.Tensor]) -> list[Row]:
    streams = [tensors[name] for name in ("token_ids", "loss_mask", "aux", "last")]
    return [
        Row(index, *(stream[offset : offset + length] for stream in streams))
        for index, offset, length in tensors["row"].tolist()
    ]


def loss_mask(length: int, spans: Iterable[Sequence[int]]) -> torch.Tensor:
    """uint8 [length], 1 inside the half-open ``spans``."""
    mask = torch.zeros(length, dtype=torch.uint8)
    for start, end in spans:
        mask[start:end] = 1
    return mask


def state_faults(name: str, states: torch.Tensor, tokens: int) -> list[Finding]:
    """What is wrong with captured states [T, slots, H] of ``tokens`` input tokens: rows, values, dead layers.

    All-zero layers train without complaint and are never accepted (vllm-project/vllm#46301).
    """
    if states.dim() != 3 or states.shape[0] != tokens:
        return [
            error(
                "shard_seq_len_mismatch",
                f"{name}: states of shape {list(states.shape)} for {tokens} tokens.",
                path=name,
                expected=tokens,
                actual=list(states.shape),
            )
        ]
    found = []
    sizes = states.float().abs().amax(dim=2)
    if not bool(torch.isfinite(sizes).all()):
        found.append(error("shard_nonfinite", f"{name}: NaN or infinite states.", path=name))
    dead = [slot for slot in range(states.shape[1]) if float(sizes[:, slot].max()) == 0.0]
    if dead:
        found.append(error("shard_layer_zero", f"{name}: all states of slot {dead} are zero.", path=name, actual=dead))
    same = [
        (a, b)
        for a in range(states.shape[1])
        for b in range(a + 1, states.shape[1])
        if not dead and torch.equal(states[:, a], states[:, b])
    ]
    if same:
        found.append(error("shard_layers_equal", f"{name}: slots {same} hold the same states.", path=name, actual=same))
    return found


class StoreWriter:
    """Packs rows into shards; a shard is written beside, read back and compared, and only then takes its name.

    Opening a directory with unfinished work of the same stamp goes on there; with another stamp it starts over.
    """

    def __init__(self, directory: Path, stamp: Stamp, shard_bytes: int) -> None:
        self.directory = directory
        self.stamp = stamp
        self._shard_bytes = shard_bytes
        self._splits: dict[str, Any] = {}
        self._pending: dict[str, list[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]] = {}
        self._clean_up()

    def _clean_up(self) -> None:
        try:
            store = open_store(self.directory, self.stamp)
            self._splits = store.splits
            for split in self._splits.values():
                split["shards"] = [shard for shard in split["shards"] if self._is_whole(shard)]
        except FindingError:
            self._splits = {}
        listed = {shard["file"] for split in self._splits.values() for shard in split["shards"]}
        for path in self.directory.iterdir():
            if ".safetensors" in path.name and path.name not in listed:
                path.unlink()

    def _is_whole(self, shard: dict[str, Any]) -> bool:
        path = self.directory / shard["file"]
        return path.exists() and path.stat().st_size == shard["bytes"]

    def done(self, split: str) -> set[int]:
        """Row numbers of a split that stand in finished shards."""
        found: set[int] = set()
        for shard in self._splits.get(split, {}).get("shards", []):
            found |= set(shard["indices"])
        return found

    @property
    def bytes_written(self) -> int:
        return sum(shard["bytes"] for split in self._splits.values() for shard in split["shards"])

    def add(
        self, split: str, index: int, token_ids: Sequence[int], spans: Iterable[Sequence[int]], states: torch.Tensor
    ) -> None:
        """Add a row: T ``token_ids`` and ``states`` [T-1, A+1, H] with the aux layers ascending and the last one last.

        Raises FindingError when the states are not usable.
        """
        tokens = len(token_ids)
        faults = state_faults(f"{split} row {index}", states, tokens - 1)
        if faults:
            raise FindingError(*faults)
        slots, hidden = len(self.stamp.layer_ids) + 1, self.stamp.hidden_size
        if tuple(states.shape[1:]) != (slots, hidden):
            raise FindingError(
                error(
                    "shard_seq_len_mismatch",
                    f"{split} row {index}: slots and width {list(states.shape[1:])}, planned {[slots, hidden]}.",
                    path=f"{split} row {index}",
                    expected=[slots, hidden],
                    actual=list(states.shape[1:]),
                )
            )
        ids = torch.tensor(list(token_ids), dtype=torch.int64)
        self._pending.setdefault(split, []).append((index, ids, loss_mask(tokens, spans), states))
        waiting = sum(entry[3].numel() * entry[3].element_size() for entry in self._pending[split])
        if waiting >= self._shard_bytes:
            self.flush(split)

    def flush(self, split: str) -> None:
        """Write the waiting rows of a split as one shard, if there are any."""
        rows = self._pending.pop(split, [])
        if not rows:
            return
        tensors = self._packed(rows)
        entry = self._splits.setdefault(split, {"shards": []})
        name = f"{split}-{len(entry['shards']):05d}.safetensors"
        temporary = self.directory / (name + ".tmp")
        save_file(tensors, temporary, metadata={"stamp": json.dumps(asdict(self.stamp))})
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        self._compare(temporary, tensors)
        os.replace(temporary, self.directory / name)
        entry["shards"].append(
            {
                "file": name,
                "bytes": (self.directory / name).stat().st_size,
                "tokens": int(tensors["token_ids"].shape[0]),
                "indices": [row[0] for row in rows],
            }
        )
        entry["rows"] = sum(len(shard["indices"]) for shard in entry["shards"])
        entry["tokens"] = sum(shard["tokens"] for shard in entry["shards"])
        write_json(self.directory / "store.json", {"stamp": asdict(self.stamp), "splits": self._splits})

    def _packed(self, rows: list[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
        total = sum(ids.shape[0] for _, ids, _, _ in rows)
        dtype, hidden = DTYPES[self.stamp.dtype], self.stamp.hidden_size
        aux = torch.zeros(total, len(self.stamp.layer_ids) * hidden, dtype=dtype)
        last = torch.zeros(total, hidden, dtype=dtype)
        index, offset = [], 0
        for number, ids, _, states in rows:
            end = offset + states.shape[0]
            aux[offset:end] = states[:, :-1].reshape(states.shape[0], -1)
            last[offset:end] = states[:, -1]
            index.append((number, offset, ids.shape[0]))
            offset += ids.shape[0]
        return {
            "aux": aux,
            "last": last,
            "token_ids": torch.cat([row[1] for row in rows]),
            "loss_mask": torch.cat([row[2] for row in rows]),
            "row": torch.tensor(index, dtype=torch.int64),
        }

    def _compare(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        """A shard counts only after what was read back from the disk equals what was meant."""
        read = _load_shard(path, self.stamp)
        for name, tensor in tensors.items():
            if not torch.equal(read[name], tensor):
                raise FindingError(
                    error(
                        "shard_truncated",
                        f"{name} of {path.name} reads back differently from what was written.",
                        path=path.name,
                        fix="Look at the disk, then run extract again.",
                    )
                )

    def close(self) -> dict[str, Any]:
        """Write what waits; the splits with their shards, rows and tokens."""
        for split in list(self._pending):
            self.flush(split)
        return self._splits
