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
from torch import Tensor, nn

from eagle3_backend.findings import Finding, FindingError, error, warning
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
    directory: Path,
    progress: Progress,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    data: str,
    parameters: Mapping[str, Any],
) -> Path:
    """Write ``step-<n>`` and drop older ones, except the best. ``data`` names the data set that is trained on;
    ``parameters`` are those that decide the result."""
    final = directory / f"step-{progress.step}"
    temporary = directory / f".{final.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, temporary / WEIGHTS)
    save_file({name: tensor.contiguous() for name, tensor in optimizer.items()}, temporary / OPTIMIZER)
    write_json(temporary / STATE, {**asdict(progress), "data": data, "parameters": dict(parameters)})
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


def newest_checkpoint(
    directory: Path, data: str, parameters: Mapping[str, Any]
) -> tuple[Progress, dict[str, Tensor], dict[str, Tensor]] | None:
    """The newest whole checkpoint of this data set: progress, weights, optimizer; None when there is none.

    Raises FindingError when it was made with other parameters.
    """
    for _, path in reversed(_folders(directory)):
        state = _json(path / STATE) if _is_whole(path) else {}
        used = state.pop("parameters", None)
        if state.pop("data", None) == data:
            _refuse_changes(path, {} if used is None else used, parameters)
            return Progress(**state), load_file(path / WEIGHTS), load_file(path / OPTIMIZER)
    return None


def _refuse_changes(path: Path, used: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Nothing of a training may change half-way: its schedule and its order were decided at its start."""
    changed = _changes(used, wanted)
    if changed:
        raise FindingError(
            error(
                "resume_parameters_changed",
                f"{path.name} was trained with other parameters: {_words(changed)}.",
                path=str(path / STATE),
                expected={name: old for name, (old, _) in changed.items()},
                actual={name: new for name, (_, new) in changed.items()},
                fix="Set them back to go on, or begin a new attempt with --restart.",
            )
        )


def left_beside(output: Path, parameters: Mapping[str, Any]) -> Finding | None:
    """A warning where another training of this campaign was left half-way with other parameters: they name another
    artifact, so that a changed parameter means a training from the first step."""
    newest: tuple[int, Path, dict[str, Any]] | None = None
    for state in output.parent.glob("*/checkpoints/step-*/" + STATE):
        folder = state.parents[2]
        if folder != output and ".old-" not in folder.name and not (folder / MANIFEST).exists():
            found = _json(state)
            changed = _changes(found.get("parameters") or {}, parameters)
            if changed and (newest is None or found["step"] > newest[0]):
                newest = found["step"], folder, changed
    if newest is None:
        return None
    step, folder, changed = newest
    return warning(
        "resume_parameters_changed",
        f"A training was left after step {step}, with other parameters: {_words(changed)}. This one begins anew.",
        path=str(folder),
        expected={name: old for name, (old, _) in changed.items()},
        actual={name: new for name, (_, new) in changed.items()},
        fix="To go on with that one, stop this run and set the parameters back.",
    )


def _changes(used: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """{name: (old, new)} of what differs; JSON knows no tuples."""
    plain = json.loads(json.dumps(wanted))
    return {name: (used[name], plain[name]) for name in sorted(used.keys() & plain.keys()) if used[name] != plain[name]}


def _words(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changed.items())


def weights_at(directory: Path, step: int) -> dict[str, Tensor] | None:
    """The weights after ``step`` steps; None where no whole checkpoint of them is there."""
    path = directory / f"step-{step}"
    return load_file(path / WEIGHTS) if _is_whole(path) else None


def load_weights(drafter: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a drafter the weights of a checkpoint. Raises FindingError when they are of another shape."""
    wanted = {name: list(tensor.shape) for name, tensor in drafter.state_dict().items()}
    found = {name: list(tensor.shape) for name, tensor in weights.items()}
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            message = (
                f"The checkpoint holds {name} as {found.get(name)}, and the drafter that is trained {wanted.get(name)}."
            )
            fix = "It is of another drafter or version: begin a new attempt with --restart."
            raise FindingError(
                error(
                    "checkpoint_shape_mismatch",
                    message,
                    path=name,
                    expected=wanted.get(name),
                    actual=found.get(name),
                    fix=fix,
                )
            )
    drafter.load_state_dict(weights)


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
    for place, value in tensors.items():
        kind, name, key = place.split("/")
        parameter = parameters[name]
        optimizers[kind].state[parameter][key] = value.to(parameter.device) if value.dim() else value


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
