"""Who uses the host: processes with their owner, what they take, and the attempt that they belong to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Set

import psutil

from eagle3_backend.agent import processes
from eagle3_backend.agent.gpus import Nvml
from eagle3_backend.agent.ladder import MARKER

LISTED = 40
"""Processes in an answer: all that compute on a GPU or are ours, then the largest."""


class Usage:
    """Remembers the processes between samples: a share of the processor is counted from one to the next.

    ``runs`` is the folder of this workspace's runs; what belongs to another workspace is a process like any other.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        try:
            self._nvml = Nvml()
        except (OSError, AttributeError):
            self._nvml = None  # type: ignore[assignment]

    def sample(self) -> List[Dict[str, Any]]:
        """pid, user, command, cpu_percent (of one core, 0 at first), memory (bytes), gpus (indices), run, attempt."""
        gpus = self._gpu_pids()
        found = []
        # psutil keeps the processes that it has met, and with them their processor times.
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    found.append(_describe(process, self._runs, gpus.get(process.pid, set())))
            except (psutil.Error, OSError):
                continue
        _inherit(found)
        found.sort(key=lambda entry: (not entry["gpus"], not entry["run"], -entry["memory"]))
        return found[:LISTED]

    def _gpu_pids(self) -> Dict[int, Set[int]]:
        """GPU indices by pid, where the driver's pids are those of this PID namespace."""
        pids: Dict[int, Set[int]] = {}
        if self._nvml is None:
            return pids
        try:
            for gpu in self._nvml.gpus():
                for pid in self._nvml.processes(gpu.index) or []:
                    pids.setdefault(pid, set()).add(gpu.index)
        except (OSError, AttributeError):
            return {}
        return pids


def _describe(process: psutil.Process, runs: Path, gpus: Set[int]) -> Dict[str, Any]:
    directory = _attempt_of(process)
    # A campaign of the same name in another workspace has runs of the same names.
    run, attempt = (directory.parent.name, directory.name) if directory.parent.parent == runs else ("", "")
    return {
        "pid": process.pid,
        "user": process.username(),
        "command": processes.command_line(process.pid) or process.name(),
        "cpu_percent": process.cpu_percent(),
        "memory": int(process.memory_info().rss),
        "gpus": sorted(gpus),
        "run": run if attempt.isdigit() else "",
        "attempt": int(attempt) if attempt.isdigit() else 0,
    }


def _inherit(found: List[Dict[str, Any]]) -> None:
    """Workers that wrote over their own environment belong to the attempt of the process that began them."""
    known = {entry["pid"]: entry for entry in found}
    parents = {process.pid: process.parent for process in processes.table().values()}
    for entry in found:
        pid = parents.get(entry["pid"], 0)
        while pid in known and not known[pid]["run"]:
            pid = parents.get(pid, 0)
        if not entry["run"] and pid in known:
            entry["run"], entry["attempt"] = known[pid]["run"], known[pid]["attempt"]


def _attempt_of(process: psutil.Process) -> Path:
    """The run directory that a process of ours carries; an environment that we may not read is nobody's of us."""
    try:
        if process.uids().real != os.getuid():
            return Path()
        return Path(process.environ().get(MARKER, ""))
    except (psutil.Error, OSError):
        return Path()
