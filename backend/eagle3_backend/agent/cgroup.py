"""What the control group of this process may use, and how often the kernel killed in it for want of memory."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import List, Optional, Tuple

_ROOT = Path("/sys/fs/cgroup")


def _directories(controller: str) -> List[Path]:
    """Where this process's group may be mounted, both hierarchies, most specific first.

    In a container the path in ``/proc/self/cgroup`` is often the host's, while the group is mounted at the root.
    """
    found: List[Path] = []
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            found += [_ROOT / path.lstrip("/"), _ROOT]
        elif controller in controllers.split(","):
            found += [_ROOT / controller / path.lstrip("/"), _ROOT / controller]
    return found


def _number(path: Path) -> Optional[int]:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _reclaimable(directory: Path) -> int:
    """Page cache that the kernel drops when memory is wanted, bytes: files that were read do not fill a host."""
    try:
        lines = (directory / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))


def oom_kills() -> Optional[int]:
    """How many processes of the group the kernel killed for want of memory so far; None when it does not say."""
    for directory in _directories("memory"):
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = (directory / name).read_text(encoding="ascii").splitlines()
            except OSError:
                continue
            for line in lines:
                key, _, value = line.partition(" ")
                if key == "oom_kill" and value.isdigit():
                    return int(value)
    return None


def memory() -> Optional[Tuple[int, int]]:
    """(used, limit) of the group in bytes; None without a limit of its own."""
    for directory in _directories("memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number(directory / limit_name), _number(directory / used_name)
            # Version 1 writes "no limit" as the largest multiple of a page.
            if limit is not None and used is not None and limit < 1 << 60:
                return max(0, used - _reclaimable(directory)), limit
    return None


def cpu_count() -> Optional[int]:
    """CPUs that we may use, which in a container are often fewer than the machine has; a part counts as one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for directory in _directories("cpu"):
        try:
            quota, period = (directory / "cpu.max").read_text(encoding="ascii").split()
            allowed = math.ceil(int(quota) / int(period))
        except (OSError, ValueError):
            continue
        return min(count, allowed) if count else allowed
    return count
