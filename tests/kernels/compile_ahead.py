"""Compiles every Triton kernel for GPUs that are not here, and prints what each takes: one JSON object a line.

Runs in a process of its own: Triton's interpreter, which the other tests use, must be off.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from eagle3_kernels import attention_triton, draft_loss_triton

CAPABILITIES = (90, 100, 120)
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
STEPS = 6
"""Own keys at the last of seven steps."""

FLOAT, HALF, LONG = "*fp32", "*bf16", "*i64"
SHAPES = [attention_triton.shape_of(STEPS, **shape) for shape in (
    {"heads": 64, "key_heads": 8, "size": 128},
    {"heads": 9, "key_heads": 3, "size": 64},
)]  # fmt: skip
LOSS = {"CAPPED": True, "BLOCK": draft_loss_triton.BLOCK}
GRADIENT = {**LOSS, "GRADIENT": True, "DECAY": 3.0}
OWN = (HALF,) * STEPS
MERGE_TYPES = [HALF, HALF, FLOAT, OWN, OWN, HALF, FLOAT, "i32", "fp32"]
SPREAD_TYPES = [HALF, HALF, HALF, FLOAT, OWN, OWN, HALF, OWN, OWN, "i32", "fp32"]
TEACHER_TYPES = [HALF, FLOAT, FLOAT, "i32", "fp32", "fp32"]
DRAFT_TYPES = [HALF, HALF, *[FLOAT] * 5, LONG, FLOAT, "i32", "i32", "fp32", "fp32"]
KERNELS = [
    *[(attention_triton.merge_rows, MERGE_TYPES, shape, attention_triton.OPTIONS) for shape in SHAPES],
    *[(attention_triton.spread_rows, SPREAD_TYPES, shape, attention_triton.OPTIONS) for shape in SHAPES],
    (draft_loss_triton.teacher_rows, TEACHER_TYPES, LOSS, draft_loss_triton.OPTIONS),
    (draft_loss_triton.draft_rows, DRAFT_TYPES, {**GRADIENT, "HYBRID": False}, draft_loss_triton.OPTIONS),
    (draft_loss_triton.draft_rows, DRAFT_TYPES, {**GRADIENT, "HYBRID": True}, draft_loss_triton.OPTIONS),
]
"""Each kernel with the types of its arguments, its constants and how it is built."""


def main() -> None:
    for kernel, types, constants, options in KERNELS:
        names = [name for name in kernel.arg_names if name not in constants]
        signature = dict(zip(names, types, strict=True)) | dict.fromkeys(constants, "constexpr")
        for capability in CAPABILITIES:
            source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
            target = GPUTarget("cuda", capability, 32)
            built = triton.compile(source, target=target, options=options)
            facts = {"kernel": kernel.__name__, "capability": capability, "shared": built.metadata.shared}
            print(json.dumps({**facts, **usage(built.asm["cubin"])}), flush=True)


def usage(binary: bytes) -> dict[str, int]:
    """Registers of a thread, and bytes that it keeps on its stack or in local memory because they do not fit."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        shown = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", shown.stdout))
    return {"registers": int(found["REG"]), "spilled": int(found["STACK"]) + int(found["LOCAL"])}


if __name__ == "__main__":
    sys.exit(main())
