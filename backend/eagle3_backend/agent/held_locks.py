"""Which locks are held on this machine, and by whom, without trying any of them.

To try a lock is to hold it for a moment, and somebody's start would fail in that moment. So the kernel is asked: a
holder's descriptor tells its locks in ``/proc/<pid>/fdinfo/<descriptor>``, and ``/proc/locks`` has those of holders
that we may not look at. The latter names who took a lock, which may have ended since, and leaves out what was taken by
processes of other PID namespaces and, but for the first namespace, by processes that have ended (`locks_translate_pid`
in the kernel's fs/locks.c).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from eagle3_backend.agent import locks, processes
from eagle3_backend.agent.workspace import local_directory
from eagle3_backend.findings import Finding, warning

PROC = Path("/proc")
FIRST_NAMESPACE = "pid:[4026531836]"
"""The PID namespace that sees all others: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""


def held(proc: Path = PROC) -> Tuple[List[Dict[str, Any]], Optional[Finding]]:
    """Every held lock of this user, and what is not seen of them.

    A lock is {kind ("artifact", "gpu", "stop", "place"), thing, run, user, since (wall time), seconds (since then),
    processes: [{pid, command}]}. ``thing`` is empty and the others are None where the lock's file does not say it;
    without ``processes`` somebody holds it whom we cannot see. Raises FindingError where the folder of locks is unsafe.
    """
    directory = local_directory()
    if not (proc / "self" / "fdinfo").is_dir():
        return [], warning(
            "locks_unreadable",
            "This system does not tell who holds which lock.",
            path=str(proc),
            fix="A start that is refused names the holder.",
        )
    holders = _holders(proc, str(directory))
    told = _told(proc)
    names = set(holders) | _named(directory, told or set())
    found = [_describe(name, holders.get(name, [])) for name in sorted(names)]
    if told is not None and _namespace(proc) == FIRST_NAMESPACE:
        return found, None
    message = "Locks that processes outside of this container hold are not seen."
    return found, warning("locks_partly_seen", message, path=str(proc / "locks"))


def _describe(name: str, pids: List[int]) -> Dict[str, Any]:
    record = locks.holder(name) or {}
    since = record.get("since")
    since = float(since) if isinstance(since, (int, float)) else None
    kind, _, rest = name.rpartition(".")[0].partition("-")
    # Files of older agents do not say what they stand for; a GPU's has it in its name.
    thing = record.get("thing") or (rest if kind == "gpu" else "")
    return {
        "kind": kind,
        "thing": str(thing),
        "run": _text(record.get("run")),
        "user": _text(record.get("user")),
        "since": since,
        "seconds": max(0.0, time.time() - since) if since is not None else None,
        "processes": [{"pid": pid, "command": processes.command_line(pid)} for pid in sorted(pids)],
    }


def _text(value: Any) -> Optional[str]:
    return str(value) if value is not None else None


def _holders(proc: Path, directory: str) -> Dict[str, List[int]]:
    """File names of held locks, each with the processes that have a descriptor of it, as far as we may look."""
    found: Dict[str, List[int]] = {}
    for pid in (name for name in os.listdir(proc) if name.isdigit()):
        for name in set(_locked_by(proc / pid, f"{directory}{os.sep}")):
            found.setdefault(name, []).append(int(pid))
    return found


def _locked_by(process: Path, prefix: str) -> Iterator[str]:
    try:
        descriptors = os.listdir(process / "fd")
    except OSError:
        return
    for descriptor in descriptors:
        try:
            target = os.readlink(process / "fd" / descriptor)
            if target.startswith(prefix) and _holds(process / "fdinfo" / descriptor):
                yield target[len(prefix) :]
        except OSError:
            continue  # it was closed, or its process ended, while we looked


def _holds(path: Path) -> bool:
    return any(line.startswith(b"lock:") and b" FLOCK " in line for line in path.read_bytes().splitlines())


def _told(proc: Path) -> Optional[Set[Tuple[str, int]]]:
    """Device and inode of every flock that the kernel tells of; None where it does not."""
    try:
        lines = (proc / "locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = set()
    for fields in map(str.split, lines):
        # "1: FLOCK  ADVISORY  WRITE 9441 fe:00:2147332 0 EOF"; who waits for one stands behind an arrow.
        if len(fields) > 5 and fields[1] == "FLOCK":
            device, _, inode = fields[5].rpartition(":")
            if inode.isdigit():
                found.add((device, int(inode)))
    return found


def _named(directory: Path, told: Set[Tuple[str, int]]) -> Set[str]:
    """The files of ``directory`` among those; folders of locks grow old, so a file is looked at by inode first."""
    inodes = {inode for _, inode in told}
    found = set()
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.inode() in inodes and entry.name.endswith(".lock"):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
                if (device, status.st_ino) in told:
                    found.add(entry.name)
    return found


def _namespace(proc: Path) -> str:
    try:
        return os.readlink(proc / "self" / "ns" / "pid")
    except OSError:
        return ""
