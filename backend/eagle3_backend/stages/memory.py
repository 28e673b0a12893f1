"""Whether this host has the memory for several CPU engines at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

GIB = 1 << 30
PROGRAM_BYTES = 2 * GIB
"""What a vLLM CPU server holds besides weights and KV cache: three processes of torch and its dependencies."""


def available_bytes() -> int:
    """Memory that can be had without swapping: the kernel's estimate, or less where a control group allows less."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except OSError:
        return free
    return free if limit == "max" else min(free, int(limit) - used)


def server_bytes(plan: Mapping[str, Any], weights_bytes: int, dtype: str) -> int:
    """Memory of one CPU server of this launch plan; ``weights_bytes`` are those of the files, in 16 bit."""
    cache = int(plan["env"].get("VLLM_CPU_KVCACHE_SPACE", "4")) * GIB
    return PROGRAM_BYTES + cache + weights_bytes * (2 if dtype == "float32" else 1)


def room_for_two(plan: Mapping[str, Any], model: Path, dtype: str) -> bool:
    """Whether two such servers fit at once. On a GPU one server takes nearly all of its memory, so never there."""
    if plan["device"] != "cpu":
        return False
    weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    return 2 * server_bytes(plan, weights, dtype) < available_bytes()
