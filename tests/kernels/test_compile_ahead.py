from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.torch

SHARED_BYTES = 99 * 1024
"""Shared memory that a block may have on the smallest of these GPUs (sm_120)."""


def test_every_kernel_is_built_for_every_gpu_within_registers_and_shared_memory(tmp_path) -> None:
    script = Path(__file__).parent / "compile_ahead.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = [json.loads(line) for line in done.stdout.splitlines()]
    assert {entry["capability"] for entry in built} == {90, 100, 120}
    assert {entry["kernel"] for entry in built} == {"merge_rows", "spread_rows", "teacher_rows", "draft_rows"}
    assert not [entry for entry in built if entry["spilled"] or entry["shared"] > SHARED_BYTES]
