"""GPU gauges from NVML and from `nvidia-smi`; unknown is None."""

from __future__ import annotations

import ctypes

import pytest

from eagle3_backend.agent.gpus import Gpu, GpuReader, Nvml, parse_smi, query_smi

LINE = "0, GPU-8a1b, NVIDIA H200, 37, 1024, 143771, 41, 120.53"


class Library:
    """Two GPUs as libnvidia-ml tells of them; the second has no power sensor and no utilisation (as under MIG)."""

    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index.value + 100
        return 0

    def nvmlDeviceGetUUID(self, handle, buffer, size):
        buffer.value = f"GPU-{handle.value}".encode()
        return 0

    def nvmlDeviceGetName(self, handle, buffer, size):
        buffer.value = b"NVIDIA H200"
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle, use):
        use._obj.gpu = 37
        return 0 if handle.value == 100 else 3

    def nvmlDeviceGetMemoryInfo(self, handle, memory):
        memory._obj.total, memory._obj.used = 150 << 30, 3 << 30
        return 0

    def nvmlDeviceGetTemperature(self, handle, sensor, value):
        value._obj.value = 41
        return 0

    def nvmlDeviceGetPowerUsage(self, handle, value):
        value._obj.value = 120_530
        return 0 if handle.value == 100 else 3

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, entries):
        count._obj.value = 1
        entries[0].pid = 4242
        return 0


def test_nvml_values_come_in_percent_bytes_celsius_and_watts():
    first, second = Nvml(Library()).gpus()
    assert first == Gpu(0, "GPU-100", "NVIDIA H200", 37.0, 3 << 30, 150 << 30, 41.0, 120.53)
    assert (second.utilisation, second.power, second.memory_used) == (None, None, 3 << 30)


def test_nvml_names_the_processes_of_a_gpu():
    assert Nvml(Library()).processes(1) == [4242]


def test_the_structures_have_the_layout_of_nvml_h():
    from eagle3_backend.agent import gpus

    assert [ctypes.sizeof(kind) for kind in (gpus._Utilisation, gpus._Memory, gpus._Process)] == [8, 24, 24]


def test_nvml_that_does_not_initialise_is_absent():
    library = Library()
    library.nvmlInit_v2 = lambda: 9
    with pytest.raises(OSError):
        Nvml(library)


def test_smi_columns_become_the_same_gpu():
    assert parse_smi(LINE + "\n") == [Gpu(0, "GPU-8a1b", "NVIDIA H200", 37.0, 1024 << 20, 143771 << 20, 41.0, 120.53)]


def test_smi_values_that_are_not_known_are_none():
    (gpu,) = parse_smi("0, GPU-8a1b, NVIDIA H200, [N/A], 1024, 143771, 41, [Not Supported]")
    assert (gpu.utilisation, gpu.power) == (None, None)


@pytest.mark.parametrize(
    "text",
    ["NVIDIA-SMI has failed because it couldn't communicate with the driver", LINE + ", 5", LINE[3:], "a" + LINE],
)
def test_smi_output_of_another_shape_is_refused_as_a_whole(text):
    assert parse_smi(LINE + "\n" + text + "\n") is None


def test_smi_that_fails_is_unknown(tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{LINE}'\nexit 9\n")
    program.chmod(0o755)
    assert query_smi(str(program)) is None
    program.write_text(f"#!/bin/sh\necho '{LINE}'\n")
    assert len(query_smi(str(program))) == 1


def test_smi_answers_where_nvml_is_absent(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{LINE}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("eagle3_backend.agent.gpus._LIBRARIES", ("libdoes-not-exist.so",))
    gpus, source = GpuReader().read()
    assert (len(gpus), source) == (1, "nvidia-smi")


def test_a_host_without_gpus_has_none_and_no_source(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("eagle3_backend.agent.gpus._LIBRARIES", ("libdoes-not-exist.so",))
    assert GpuReader().read() == ([], None)
