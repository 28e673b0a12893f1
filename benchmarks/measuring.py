"""How a benchmark measures: CPU time of one thread, variants interleaved in processes of their own, medians.

Absolute times on a shared machine mean nothing, so every figure is a ratio to what ran beside it. Memory is the
resident set over what it was before the measured call, sampled while that runs.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5
MIB = 1 << 20
SAMPLE_SECONDS = 0.002
PATHS = os.pathsep.join(str(ROOT / name) for name in ("kernels", "backend"))
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": PATHS}


def measured(call: Callable[[], Any]) -> dict[str, float]:
    """CPU seconds and peak memory (MiB) of ``call``, after one call that warms up whatever it needs."""
    call()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    base, peak, ended = _resident(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            peak[0] = max(peak[0], _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    # Autograd runs backward of CPU tensors in the calling thread; the watcher is not counted.
    started = time.thread_time()
    call()
    seconds = time.thread_time() - started
    ended.set()
    watcher.join()
    return {"cpu_seconds": seconds, "peak_mib": (peak[0] - base) / MIB}


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def speculators_python() -> str:
    """The interpreter of the environment with speculators that the tests use as well; built where it is not there."""
    path = ROOT / "tests" / "support" / "speculators_environment.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    train_python = Path(sys.prefix).resolve() / "bin" / "python"
    return module.build(ROOT / ".build" / "speculators", str(train_python))


def child(script: Path, *arguments: str, python: str = sys.executable) -> dict[str, Any]:
    """What a script prints when it runs alone, on one thread: one JSON object."""
    done = subprocess.run(
        [python, str(script), *arguments],
        env={**os.environ, **ONE_THREAD},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def interleaved(script: Path, variants: Sequence[str], rounds: int = ROUNDS) -> dict[str, dict[str, dict[str, float]]]:
    """Median, minimum and maximum of each figure of each variant, run A B C A B C ..."""
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            found[variant].append(child(script, variant))
    return {variant: {name: spread([run[name] for run in runs]) for name in runs[0]} for variant, runs in found.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def medians(figures: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: round(spread["median"], 4) for name, spread in figures.items()}


def row(
    what: str, ours: Any, peer: Any, ratio: Mapping[str, float], reach: Mapping[str, float], runs: Any = None
) -> dict[str, Any]:
    """One row of the results. Each entry of ``ratio`` must be at least its ``reach``, or at most where its name says
    ``at_most_``."""
    met = all(
        ratio[name] <= bound if name.startswith("at_most_") else ratio[name] >= bound for name, bound in reach.items()
    )
    rounded = {name: round(value, 3) for name, value in ratio.items()}
    return {"what": what, "ours": ours, "peer": peer, "ratio": rounded, "reach": dict(reach), "met": met, "runs": runs}
