"""What the GPUs say of themselves: NVML through ctypes, else `nvidia-smi`; None is unknown and never 0."""

from __future__ import annotations

import csv
import ctypes
import shutil
import subprocess
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
_COLUMNS = (
    "index",
    "uuid",
    "name",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "power.draw",
)
_SMI_SECONDS = 5.0
_TEXT = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE of nvml.h, characters."""


@dataclass(frozen=True)
class Gpu:
    """One GPU: utilisation in percent, memory in bytes, temperature in Celsius, power in watts."""

    index: int
    uuid: Optional[str]
    name: Optional[str]
    utilisation: Optional[float] = None
    memory_used: Optional[int] = None
    memory_total: Optional[int] = None
    temperature: Optional[float] = None
    power: Optional[float] = None

    def to_json(self) -> Dict[str, Any]:
        return asdict(self)


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """NVIDIA's management library (function and structure names of nvml.h). Raises OSError where it is absent."""

    def __init__(self, library: Optional[Any] = None) -> None:
        self._library = library if library is not None else _load()
        if self._library.nvmlInit_v2() != 0:
            raise OSError("nvmlInit_v2 failed: no driver, or one of another version than the library")

    def gpus(self) -> List[Gpu]:
        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            raise OSError("nvmlDeviceGetCount_v2 failed")
        return [self._gpu(index) for index in range(count.value)]

    def processes(self, index: int) -> Optional[List[int]]:
        """Pids that compute on this GPU, as the driver counts them (the host's, where a container has its own)."""
        handle = self._handle(index)
        count = ctypes.c_uint(256)
        entries = (_Process * count.value)()
        if handle is None or self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, count, entries) != 0:
            return None
        return [entries[number].pid for number in range(count.value)]

    def _handle(self, index: int) -> Optional[ctypes.c_void_p]:
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
        return handle if code == 0 else None

    def _call(self, function: str, handle: ctypes.c_void_p, count: ctypes.c_uint, entries: Any) -> int:
        try:
            return int(getattr(self._library, function)(handle, ctypes.byref(count), entries))
        except AttributeError:
            return -1

    def _gpu(self, index: int) -> Gpu:
        handle = self._handle(index)
        if handle is None:
            return Gpu(index, None, None)
        library = self._library
        uuid, name = ctypes.create_string_buffer(_TEXT), ctypes.create_string_buffer(_TEXT)
        use, memory = _Utilisation(), _Memory()
        temperature, power = ctypes.c_uint(), ctypes.c_uint()

        def known(code: int, value: Callable[[], Any]) -> Any:
            return value() if code == 0 else None

        memory_code = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        return Gpu(
            index=index,
            uuid=known(library.nvmlDeviceGetUUID(handle, uuid, _TEXT), lambda: _string(uuid)),
            name=known(library.nvmlDeviceGetName(handle, name, _TEXT), lambda: _string(name)),
            utilisation=known(library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use)), lambda: float(use.gpu)),
            memory_used=known(memory_code, lambda: int(memory.used)),
            memory_total=known(memory_code, lambda: int(memory.total)),
            temperature=known(
                library.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(temperature)),
                lambda: float(temperature.value),
            ),
            power=known(library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power)), lambda: power.value / 1000.0),
        )


def _load() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("no NVML library")


def _string(buffer: Any) -> str:
    return str(buffer.value.decode("utf-8", "replace"))


def query_smi(program: str) -> Optional[List[Gpu]]:
    """The same from `nvidia-smi`; None where it is absent, fails, hangs, or prints anything but the asked columns."""
    command = [program, f"--query-gpu={','.join(_COLUMNS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_smi(done.stdout.decode("utf-8", "replace"))


def parse_smi(text: str) -> Optional[List[Gpu]]:
    """GPUs from the CSV; None as a whole when a row is not what was asked for."""
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != len(_COLUMNS) or not row[0].strip().isdigit() or not row[1].startswith(("GPU-", "MIG-")):
            return None
        use, used, total, temperature, power = map(_decimal, row[3:])
        gpus.append(Gpu(int(row[0]), row[1], row[2], use, _mebibytes(used), _mebibytes(total), temperature, power))
    return gpus


def _decimal(text: str) -> Optional[float]:
    """A number, or None for "[N/A]", "[Not Supported]" and their like."""
    try:
        return float(text)
    except ValueError:
        return None


def _mebibytes(value: Optional[float]) -> Optional[int]:
    return int(value * (1 << 20)) if value is not None else None


class GpuReader:
    """Reads all GPUs by the best source there is, and remembers which that was."""

    def __init__(self) -> None:
        try:
            self._nvml: Optional[Nvml] = Nvml()
        except (OSError, AttributeError):
            self._nvml = None
        self._smi = shutil.which("nvidia-smi")

    def read(self) -> Tuple[List[Gpu], Optional[str]]:
        """GPUs and the source: ``nvml``, ``nvidia-smi``, or None where neither answers."""
        if self._nvml is not None:
            try:
                return self._nvml.gpus(), "nvml"
            except (OSError, AttributeError):
                self._nvml = None
        found = query_smi(self._smi) if self._smi else None
        return (found, "nvidia-smi") if found is not None else ([], None)
