"""The gauges of a host: CPU, memory, the workspace's disk, GPUs. None is unknown."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import psutil

from eagle3_backend.agent import cgroup, probes
from eagle3_backend.agent.gpus import GpuReader


class Telemetry:
    """Samples one host; ``directory`` lies on the disk that is shown."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._gpus = GpuReader()
        # The first value that psutil gives has nothing to compare with and is no measurement.
        psutil.cpu_percent()
        self._since = time.monotonic()

    def sample(self) -> Dict[str, Any]:
        """One picture of the machine, in percent and bytes; ``wall`` is when it was taken."""
        gpus, source = self._gpus.read()
        used, total = _memory()
        free, size = self._disk()
        return {
            "wall": time.time(),
            "cpu_percent": self._cpu_percent(),
            "cpu_count": cgroup.cpu_count(),
            "load": os.getloadavg()[0],
            "memory_used": used,
            "memory_total": total,
            "disk_free": free,
            "disk_total": size,
            "gpus": [gpu.to_json() for gpu in gpus],
            "gpu_source": source,
        }

    def _cpu_percent(self) -> float:
        """Since the last sample, at least 100 ms ago: kernel ticks are 10 ms, less would be noise."""
        time.sleep(max(0.0, 0.1 - (time.monotonic() - self._since)))
        self._since = time.monotonic()
        return psutil.cpu_percent()

    def _disk(self) -> Tuple[Optional[int], Optional[int]]:
        try:
            room = probes.room(str(self._directory))
        except OSError:
            return None, None
        return room["free_bytes"], room["total_bytes"]


def _memory() -> Tuple[int, int]:
    """(used, total) of what bounds us: the machine, or a control group that allows less."""
    whole = psutil.virtual_memory()
    group = cgroup.memory()
    if group is not None and group[1] < whole.total:
        return group
    return whole.total - whole.available, whole.total
