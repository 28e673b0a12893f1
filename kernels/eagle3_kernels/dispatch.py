"""Which implementation a kernel takes: Triton on a GPU that can build it, plain torch everywhere else."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class Path:
    """``name`` is ``triton`` or ``torch``; ``reason`` says why a GPU has to do with plain torch, else it is empty."""

    name: str
    reason: str = ""


def kernel_path(device: torch.device) -> Path:
    """The implementation that kernels take for tensors on ``device``; warns once when a GPU cannot have Triton's."""
    return Path("torch") if device.type != "cuda" else _gpu_path()


@cache
def _gpu_path() -> Path:
    fault = triton_fault(torch.device("cuda"))
    if not fault:
        return Path("triton")
    warnings.warn(f"Kernels run as plain torch, slower and with more memory: {fault}", RuntimeWarning, stacklevel=3)
    return Path("torch", fault)


def triton_fault(device: torch.device) -> str:
    """Why no Triton kernel can run on ``device``, or nothing: a trivial one is built and run.

    Triton builds its launcher with the host's C compiler, which machines often lack (``CC`` names another one).
    """
    try:
        from eagle3_kernels import triton_probe

        triton_probe.run(device)
    except Exception as problem:  # whatever Triton, its driver or the compiler raise
        return f"{type(problem).__name__}: {problem}"
    return ""
