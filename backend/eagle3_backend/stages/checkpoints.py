"""Checkpoints of the training: safetensors and JSON, whole or not there, no matter when the process dies.

A checkpoint is ``step-<n>/`` with ``drafter.safetensors`` (float32 weights), ``optimizer.safetensors`` (moments),
``state.json`` and a manifest of sizes and hashes, written under a temporary name and renamed when it is all on disk.
Nothing in it depends on the number of processes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from eagle3_backend.pipeline.artifacts import MANIFEST, hash_file, write_json

WEIGHTS = "drafter.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"


@dataclass(frozen=True)
class Progress:
    """Where the training stands after ``step`` optimizer steps: ``batch`` batches of epoch ``epoch`` are done.

    ``best`` is the highest acceptance length on held-out rows so far and ``best_step`` the step that reached it;
    ``cpu_seconds`` counts all attempts.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: float = 0.0
    best_step: int = 0
    cpu_seconds: float = 0.0


def save_checkpoint(
    directory: Path, progress: Progress, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], data: str
) -> Path:
    """Write ``step-<n>`` and drop older ones, except the best. ``data`` names the data set that is trained on."""
    final = directory / f"step-{progress.step}"
    temporary = directory / f".{final.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, temporary / WEIGHTS)
    save_file({name: tensor.contiguous() for name, tensor in optimizer.items()}, temporary / OPTIMIZER)
    write_json(temporary / STATE, {**asdict(progress), "data": data})
    files = {path.name: path for path in sorted(temporary.iterdir())}
    for path in files.values():
        _sync(path)
    write_json(
        temporary / MANIFEST,
        {
            "files": [
                {"path": name, "bytes": path.stat().st_size, "sha256": hash_file(path)} for name, path in files.items()
            ]
        },
    )
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    _sync(directory)
    for step, older in _folders(directory):
        if step not in (progress.step, progress.best_step):
            shutil.rmtree(older, ignore_errors=True)
    return final


def newest_checkpoint(directory: Path, data: str) -> tuple[Progress, dict[str, Tensor], dict[str, Tensor]] | None:
    """The newest whole checkpoint of this data set: progress, weights, optimizer; None when there is none."""
    for _, path in reversed(_folders(directory)):
        state = _json(path / STATE) if _is_whole(path) else {}
        if state.pop("data", None) == data:
            return Progress(**state), load_file(path / WEIGHTS), load_file(path / OPTIMIZER)
    return None


def optimizer_tensors(
    optimizers: Mapping[str, torch.optim.Optimizer], names: Mapping[Tensor, str]
) -> dict[str, Tensor]:
    """The moments of several optimizers as one flat dictionary: ``<optimizer>/<parameter>/<moment>``."""
    return {
        f"{kind}/{names[parameter]}/{key}": value
        for kind, optimizer in optimizers.items()
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def restore_optimizers(
    optimizers: Mapping[str, torch.optim.Optimizer], parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    """Put moments from `optimizer_tensors` back."""
    for name, value in tensors.items():
        kind, parameter, key = name.split("/")
        optimizers[kind].state[parameters[parameter]][key] = value


def _folders(directory: Path) -> list[tuple[int, Path]]:
    """(step, folder) of every checkpoint, oldest first; folders with other names are not ours."""
    paths = directory.glob("step-*") if directory.exists() else ()
    return sorted((int(path.name[5:]), path) for path in paths if path.name[5:].isdigit())


def _is_whole(path: Path) -> bool:
    """Whether the manifest is there and matches its files, hashes included."""
    try:
        return all(hash_file(path / entry["path"]) == entry["sha256"] for entry in _json(path / MANIFEST)["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
