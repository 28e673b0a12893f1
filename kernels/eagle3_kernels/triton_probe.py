"""The smallest Triton kernel: shows whether kernels can be built and run on a device."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _write_one(out):
    tl.store(out, 1)


def run(device: torch.device) -> None:
    """Raises whatever keeps Triton from building or running a kernel there."""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    _write_one[(1,)](out)
    if out.item() != 1:
        raise RuntimeError("a Triton kernel ran and wrote nothing")
