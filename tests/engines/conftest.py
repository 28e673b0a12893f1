"""Traces as a profiler would write them, made by hand: events of kernels, operators and annotations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest


class Trace:
    """Collects events; times are microseconds."""

    def __init__(self, rank: int | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.rank = rank

    def add(self, kind: str, name: str, begin: float, end: float, *, pid: Any = 0, tid: Any = 7) -> Trace:
        event = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid, "ts": begin, "dur": end - begin}
        self.events.append(event)
        return self

    def kernel(self, name: str, begin: float, end: float, *, stream: int = 7, device: int = 0) -> Trace:
        return self.add("kernel", name, begin, end, pid=device, tid=stream)

    def mark(self, name: str, begin: float, end: float, *, stream: int = 7, device: int = 0) -> Trace:
        return self.add("gpu_user_annotation", name, begin, end, pid=device, tid=stream)

    def op(self, name: str, begin: float, end: float, *, thread: int = 1) -> Trace:
        return self.add("cpu_op", name, begin, end, pid=100, tid=thread)

    def note(self, name: str, begin: float, end: float, *, thread: int = 1) -> Trace:
        return self.add("user_annotation", name, begin, end, pid=100, tid=thread)

    def content(self) -> dict[str, Any]:
        header: dict[str, Any] = {"schemaVersion": 1}
        if self.rank is not None:
            header["distributedInfo"] = {"rank": self.rank, "backend": "nccl"}
        return {**header, "traceEvents": self.events, "traceName": "made by hand"}


@pytest.fixture
def new_trace() -> type[Trace]:
    return Trace


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a trace, or any text; names that end with .gz are packed."""

    def write(trace: Trace | str, name: str = "rank0.trace.json") -> Path:
        text = trace if isinstance(trace, str) else json.dumps(trace.content(), indent=1)
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.fixture
def steps_with_drafter(new_trace: type[Trace]) -> Callable[..., Trace]:
    """A device whose decode steps take 100 us: 40 attention, 20 matrix product, 10 sampling, 20 drafter, 10 gap."""

    def make(count: int = 5, *, marked: bool = True, requests: Sequence[int] | None = None) -> Trace:
        trace = new_trace()
        for number in range(count):
            at = 100.0 * number
            active = requests[number] if requests else 8
            trace.mark(f"execute_context_0(0)_generation_{active}({4 * active})", at, at + 60)
            trace.kernel("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", at, at + 40)
            trace.kernel("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", at + 40, at + 60)
            trace.kernel("rejection_greedy_sample_kernel", at + 60, at + 70)
            trace.kernel("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>", at + 70, at + 90)
            if marked:
                trace.mark("gpu_model_runner: sample", at + 60, at + 70)
                trace.mark("gpu_model_runner: draft", at + 70, at + 90)
        return trace

    return make
