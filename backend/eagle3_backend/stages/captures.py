"""Captured hidden states on their way from the engine to a stage: the lock, the checks, and the move.

The engine holds an exclusive lock on ``<path>.lock`` from before the client can learn the path until the file is
written.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from eagle3_backend.stages.store import state_faults

LOCK_SECONDS = 120.0
"""Longest wait for the engine to write one file."""


class CaptureFailed(Exception):
    """The states of this sample are not usable; asking for them again may help."""


def take(path: Path, directory: Path, token_ids: Sequence[int], slots: int, final: Path) -> None:
    """Check a captured file and move it to ``final``, on the same file system.

    ``path`` is what the engine named and must lie in ``directory``; ``token_ids`` are the tokens that were inputs.
    Raises CaptureFailed; the file is then gone.
    """
    if path.parent.resolve() != directory.resolve():
        raise CaptureFailed(f"the engine named {path}, which is not in the capture directory")
    lock = Path(f"{path}.lock")
    try:
        _wait(lock)
        states = load(path, token_ids)
        faults = state_faults(path.name, states, len(token_ids))
        if not faults and states.shape[1] != slots:
            raise CaptureFailed(f"{states.shape[1]} layers were captured, {slots} were planned")
        if faults:
            raise CaptureFailed(faults[0].message)
        os.replace(path, final)
    finally:
        lock.unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _wait(lock: Path) -> None:
    """Until the writer has let go. Polling, because a blocking lock could outlive the stage's wish to leave."""
    end = time.monotonic() + LOCK_SECONDS
    try:
        with open(lock) as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise CaptureFailed(f"{lock.name} was not released in {LOCK_SECONDS:.0f} s") from None
                    time.sleep(0.01)
    except FileNotFoundError as problem:
        raise CaptureFailed(f"{lock.name} is not there") from problem


def load(path: Path, token_ids: Sequence[int]) -> torch.Tensor:
    """States [T, slots, hidden] of a captured file that must be of ``token_ids`` (T). Raises CaptureFailed."""
    try:
        with safe_open(path, framework="pt") as file:
            found = file.get_tensor("token_ids").tolist()
            states: torch.Tensor = file.get_tensor("hidden_states")
    except (OSError, SafetensorError, KeyError) as problem:
        raise CaptureFailed(f"{path.name} cannot be read: {problem}") from problem
    if found != list(token_ids):
        raise CaptureFailed(f"{path.name} holds {len(found)} tokens that are not the {len(token_ids)} planned ones")
    return states
