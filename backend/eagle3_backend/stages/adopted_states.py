"""Hidden states that another tool made: `hs_<number>.safetensors` in the layout of speculators.

Each file holds ``token_ids`` [T] and ``hidden_states`` [T, slots, H] with the aux layers ascending and the last one
last. Nothing in it says which row it belongs to, or which target and layers it came from: rows are found by their
tokens, never by a file's number, and the layers are taken to be those that are asked for.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.state_files import read_state_file, shape_faults
from eagle3_backend.stages.store import state_faults

FILES = "hs_*.safetensors"


class AdoptedStates:
    """The files of a directory, by their tokens. ``faults`` holds a finding for each that cannot be used."""

    def __init__(self, directory: Path, slots: int, hidden_size: int) -> None:
        """Raises FindingError when there is no such directory, or no file of states in it."""
        paths = sorted(directory.glob(FILES)) if directory.is_dir() else []
        if not paths:
            raise FindingError(_nothing(directory))
        self.directory = directory
        self.files = len(paths)
        self.faults: list[Finding] = []
        self._shape = (slots, hidden_size)
        found = []
        for path in paths:
            try:
                found.append((self._tokens(path), path))
            except FindingError as problem:
                self.faults += problem.findings
            except OSError as problem:
                self.faults.append(_unreadable(path, problem))
        found.sort()
        self._keys = [key for key, _ in found]
        self._paths = [path for _, path in found]

    def _tokens(self, path: Path) -> bytes:
        """A file's tokens as a key. Raises FindingError for a file that is damaged or of another layout."""
        file = read_state_file(path)
        faults = shape_faults(file, *self._shape)
        if faults:
            raise FindingError(*faults)
        return _key(file.token_ids)

    def find(self, ids: Sequence[int]) -> Path | None:
        """The file whose tokens are ``ids`` or go on from them: states do not depend on what follows."""
        key = _key(ids)
        place = bisect_left(self._keys, key)
        return self._paths[place] if place < len(self._keys) and self._keys[place].startswith(key) else None


def load(path: Path, tokens: int) -> torch.Tensor:
    """The first ``tokens`` states [tokens, slots, H] of a file. Raises FindingError when they are not usable."""
    try:
        with safe_open(path, framework="pt") as file:
            states: torch.Tensor = file.get_slice("hidden_states")[:tokens]
    except (OSError, SafetensorError) as problem:
        raise FindingError(_unreadable(path, problem)) from problem
    faults = state_faults(path.name, states, tokens)
    if faults:
        raise FindingError(*faults)
    return states


def _key(ids: Sequence[int]) -> bytes:
    """Tokens as bytes: a key that begins with another one belongs to tokens that begin with the other's."""
    return struct.pack(f">{len(ids)}q", *ids)


def _unreadable(path: Path, problem: Exception) -> Finding:
    return error("shard_truncated", f"{path.name} cannot be read: {problem}.", path=path.name, fix="Copy it again.")


def _nothing(directory: Path) -> Finding:
    return error(
        "shard_missing",
        f"There are no hidden states to adopt in {directory}.",
        path="stages.extract.adopt",
        expected=FILES,
        actual=str(directory),
        fix="Name a directory on the host with such files, or leave extract.adopt empty.",
    )


def foreign(states: AdoptedStates) -> Finding:
    """The error that comes when no row is among the files."""
    return error(
        "shard_token_mismatch",
        f"None of the {states.files} files in {states.directory} holds the tokens of a row.",
        path="stages.extract.adopt",
        actual=str(states.directory),
        fix="Adopt the conversations that these states were made from too; accept this to make all states here.",
    )
