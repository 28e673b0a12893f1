"""Processes as the kernel tells them apart, and signals that cannot hit a stranger.

A pid alone is no identity: numbers are given out again. The start time in kernel ticks (field 22 of
``/proc/<pid>/stat``) does not move when the clock is set, unlike the wall time that psutil makes of it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional

LINUX = sys.platform.startswith("linux")


class Process(NamedTuple):
    """A living process; ``ticks`` is its start time in the kernel's unit, ``group`` its process group."""

    pid: int
    parent: int
    group: int
    ticks: int


def read(pid: int) -> Optional[Process]:
    """The process that has this number now; None when there is none, or only a zombie."""
    if not LINUX:
        return _read_portable(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name may hold spaces and brackets: fields count from behind its last bracket.
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[19]))


def _read_portable(pid: int) -> Optional[Process]:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return Process(pid, process.ppid(), os.getpgid(pid), int(process.create_time() * 1e6))
    except (psutil.Error, OSError):
        return None


def table() -> Dict[int, Process]:
    """Every living process of this PID namespace."""
    if LINUX:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    else:
        import psutil

        pids = psutil.pids()
    return {process.pid: process for process in map(read, pids) if process is not None}


def descendants(root: int, processes: Dict[int, Process]) -> List[Process]:
    """Children of ``root``, their children and so on, without ``root`` itself."""
    children: Dict[int, List[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found: List[Process] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return found


def marked(variable: str, value: str, processes: Iterable[Process]) -> List[Process]:
    """Those that were started with ``variable=value`` in their environment, as far as we may look.

    This finds workers that left session and parent behind: an environment is inherited all the same.
    """
    wanted = f"{variable}={value}".encode()
    return [process for process in processes if wanted in _environment(process.pid)]


def carries(variable: str, pid: int) -> bool:
    """Whether the process was started with this variable, whatever its value."""
    return any(entry.startswith(f"{variable}=".encode()) for entry in _environment(pid))


def _environment(pid: int) -> List[bytes]:
    if LINUX:
        try:
            return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return []
    import psutil

    try:
        return [f"{key}={entry}".encode() for key, entry in psutil.Process(pid).environ().items()]
    except (psutil.Error, OSError):
        return []


def command_line(pid: int) -> str:
    """What the process runs, for people; at most 200 characters, empty when unknown."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200]
    except OSError:
        return ""


def send(process: Process, number: int) -> bool:
    """Signal exactly this process; False when it is gone, whoever has its number now."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        # No pidfd here (macOS, old kernels, some sandboxes): the check just before is the best there is.
        return _is_same(process) and _kill(process.pid, number)
    try:
        # The descriptor holds on to whoever has the number now; then we look who that is.
        if not _is_same(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)


def _is_same(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.ticks == process.ticks


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
