"""GPU memory before and after an attempt, by a reader that answers as it is told."""

from __future__ import annotations

import pytest

from eagle3_backend.agent import gpu_memory
from eagle3_backend.agent.gpu_memory import GpuMemory
from eagle3_backend.agent.gpus import Gpu

GIB = 1 << 30


class Reader:
    """``used`` by uuid, one picture after the other, the last one for ever."""

    def __init__(self, *used):
        self.used = list(used)

    def read(self):
        now = self.used.pop(0) if len(self.used) > 1 else self.used[0]
        return [Gpu(number, uuid, "H200", memory_used=held) for number, (uuid, held) in enumerate(now.items())], "nvml"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gpu_memory, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(gpu_memory, "POLL", 0.01)


def test_memory_that_comes_back_after_a_moment_is_no_finding():
    reader = Reader({"a": GIB}, {"a": 90 * GIB}, {"a": 40 * GIB}, {"a": GIB + 1000})
    assert GpuMemory(["a"], reader).findings() == []


def test_memory_that_stays_is_told_for_the_gpus_of_the_attempt_alone():
    reader = Reader({"a": GIB, "b": 0}, {"a": 41 * GIB, "b": 90 * GIB})
    (finding,) = GpuMemory(["a"], reader).findings()
    assert (finding.code, finding.path, finding.actual) == ("gpu_memory_not_freed", "a", 41 * GIB)
    assert "40.0 GiB" in finding.message


def test_what_a_driver_does_not_tell_and_attempts_without_gpus_are_not_judged():
    assert GpuMemory(["a"], Reader({"a": None}, {"a": 90 * GIB})).findings() == []
    assert GpuMemory([]).findings() == []
