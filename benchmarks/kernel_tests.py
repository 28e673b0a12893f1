"""Row 16: Triton kernels without a GPU, in the interpreter and built ahead of time, with what that costs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Any

from measuring import ROOT, row

LIMIT_SECONDS = 120


def results() -> dict[str, dict[str, Any]]:
    before = _seconds()
    paths = os.pathsep.join(str(ROOT / name) for name in ("backend", "kernels"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "kernels")],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = _seconds() - before
    ours = {"cpu_seconds": round(seconds, 1), "outcome": done.stdout.splitlines()[-1]}
    ratio = {"at_most_cpu_seconds": seconds / LIMIT_SECONDS, "at_most_exit": done.returncode}
    what = "Triton kernels: float32 within 1e-5 of float64 in the interpreter, built without spills for three GPUs"
    return {"16": row(what, ours, {"cpu_seconds": LIMIT_SECONDS}, ratio, {"at_most_cpu_seconds": 1, "at_most_exit": 0})}


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
