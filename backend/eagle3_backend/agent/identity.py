"""Which machine this is, and whether a process that a file names is still that process."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from eagle3_backend.agent import processes


@dataclass(frozen=True)
class Host:
    """A machine between two boots, seen from one PID namespace. A restarted container is another one."""

    host_name: str
    boot_id: str
    pid_namespace: str

    def to_json(self) -> Dict[str, str]:
        return {"host_name": self.host_name, "boot_id": self.boot_id, "pid_namespace": self.pid_namespace}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Host:
        return cls(str(data.get("host_name")), str(data.get("boot_id")), str(data.get("pid_namespace")))


@functools.lru_cache(maxsize=1)
def this_host() -> Host:
    return Host(socket.gethostname(), _boot_id(), _pid_namespace())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        pass
    try:
        command = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def identity_of(process: processes.Process) -> Dict[str, Any]:
    """What a file records of a process of this host."""
    return {**this_host().to_json(), "pid": process.pid, "ticks": process.ticks}


def living(record: Optional[Mapping[str, Any]]) -> Optional[processes.Process]:
    """The process that `identity_of` recorded, if every part of it still holds; else None."""
    if not record or Host.from_json(record) != this_host() or not isinstance(record.get("pid"), int):
        return None
    process = processes.read(record["pid"])
    return process if process is not None and process.ticks == record.get("ticks") else None
