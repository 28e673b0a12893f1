"""What a host offers and what it lacks, before anything starts: one line for each thing, with the fix."""

from __future__ import annotations

import fcntl
import importlib
import locale
import mmap
import os
import platform
import resource
import shutil
import sys
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from eagle3_backend.agent import gpus, launch, probes, processes
from eagle3_backend.agent.ladder import MARKER
from eagle3_backend.agent.workspace import Workspace, local_directory
from eagle3_backend.findings import Finding, FindingError, Severity, error, warning

OPEN_FILES = 4096
"""Open files that an engine with many connections and shards wants at least."""
SHARED_MEMORY = 1 << 30
"""Bytes of /dev/shm below which tensor-parallel workers (NCCL, torch) are known to die with SIGBUS."""
FREE_FLOOR = 10 << 30
"""Free bytes below which no campaign is worth starting; the forecast knows the real need."""

Check = Callable[[], Tuple[str, Optional[Finding]]]


def examine(workspace: Workspace, request: Dict[str, Any]) -> List[Dict[str, Any]]:
    """All checks: {area, check, level: ok | warning | error, text, finding}. ``request`` may name a ``port``."""
    checks: List[Tuple[str, str, Check]] = [
        ("host", "python", _python),
        ("host", "psutil", _psutil),
        ("host", "locale", _locale),
        ("host", "open files", _open_files),
        ("host", "process tree", _subreaper),
        ("host", "logout", _logout),
        ("gpus", "gpus", _gpus),
        ("room", "workspace", lambda: _writable(workspace.state)),
        ("room", "mmap", lambda: _mmap(workspace.state)),
        ("room", "locks", _flock),
        ("room", "free space", lambda: _free(workspace.root)),
        ("room", "/dev/shm", _shared_memory),
    ]
    port = request.get("port")
    if isinstance(port, int):
        checks.append(("serving", "port", lambda: _port(port)))
    return [_run(*check) for check in checks]


def _run(area: str, name: str, check: Check) -> Dict[str, Any]:
    try:
        text, finding = check()
    except FindingError as problem:
        text, finding = "", problem.findings[0]
    except OSError as problem:
        text, finding = "", error("host_io_error", f"{problem}.", path=name)
    level = finding.severity.value if finding is not None and finding.severity is not Severity.INFO else "ok"
    return {
        "area": area,
        "check": name,
        "level": level,
        "text": finding.message if finding else text,
        "finding": finding.to_json() if finding else None,
    }


def _python() -> Tuple[str, Optional[Finding]]:
    text = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info >= (3, 9):
        return text, None
    return text, error("python_too_old", f"{text}; the agent needs 3.9.", expected=">= 3.9", path=sys.executable)


def _psutil() -> Tuple[str, Optional[Finding]]:
    try:
        version = importlib.import_module("psutil").__version__
    except ImportError as problem:
        return "", launch.without_psutil(problem)
    return f"psutil {version}", None


def _locale() -> Tuple[str, Optional[Finding]]:
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") in ("utf8", "usascii", "ansi_x3.41968"):
        return encoding, None
    return "", warning("locale_not_utf8", f"The host writes text as {encoding}, not UTF-8.", actual=encoding)


def _open_files() -> Tuple[str, Optional[Finding]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= OPEN_FILES or soft == resource.RLIM_INFINITY:
        return f"{soft} open files", None
    return "", warning(
        "open_files_low",
        f"A process may open {soft} files; engines want {OPEN_FILES}.",
        expected=OPEN_FILES,
        actual=soft,
        fix=f"ulimit -n {OPEN_FILES}" + ("" if hard >= OPEN_FILES else ", after root raises the hard limit"),
    )


def _subreaper() -> Tuple[str, Optional[Finding]]:
    if processes.LINUX:
        return "orphaned workers come back to their supervisor", None
    text = (
        "This system has no subreaper and no /proc: a worker that leaves its session is found by its environment only."
    )
    return "", warning("process_tree_limited", text, actual=platform.system())


def _logout() -> Tuple[str, Optional[Finding]]:
    if shutil.which("systemd-run") and os.environ.get("XDG_RUNTIME_DIR"):
        return "runs get a systemd scope of their own", None
    return "no systemd user scope; runs detach by their own session", None


def _gpus() -> Tuple[str, Optional[Finding]]:
    found, source = gpus.GpuReader().read()
    if not found:
        return "no NVIDIA GPU", None
    text = f"{len(found)} x {found[0].name} ({source})"
    strangers = _foreign(found) if source == "nvml" else []
    if strangers:
        return text, warning(
            "gpu_foreign_process", f"{text}; other processes compute there: {', '.join(strangers)}.", actual=strangers
        )
    return text, None


def _foreign(found: List[gpus.Gpu]) -> List[str]:
    """Who computes there without belonging to an attempt."""
    library = gpus.Nvml()
    return [
        f"GPU {gpu.index}: {processes.command_line(pid) or 'unknown'} (pid {pid})"
        for gpu in found
        for pid in library.processes(gpu.index) or ()
        if not processes.carries(MARKER, pid)
    ]


def _writable(directory: Path) -> Tuple[str, Optional[Finding]]:
    path = directory / f"doctor.{uuid.uuid4().hex}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(b"x")
        path.rename(path.with_name(f"{path.name}.renamed"))
        path.with_name(f"{path.name}.renamed").unlink()
    except OSError as problem:
        return "", error(
            "workspace_not_writable", f"{problem}.", path=str(directory), fix="Name another workspace in the profile."
        )
    return f"{directory.parent} is writable", None


def _mmap(directory: Path) -> Tuple[str, Optional[Finding]]:
    path = directory / f"doctor.{uuid.uuid4().hex}"
    try:
        path.write_bytes(b"\0" * mmap.PAGESIZE)
        with open(path, "rb") as file:
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ).close()
    except (OSError, ValueError) as problem:
        return "", error(
            "mmap_unsupported",
            f"Files there cannot be mapped: {problem}.",
            path=str(directory.parent),
            fix="Put the workspace on another file system.",
        )
    finally:
        if path.exists():
            path.unlink()
    return "files can be mapped", None


def _flock() -> Tuple[str, Optional[Finding]]:
    path = local_directory() / f"doctor.{uuid.uuid4().hex}"
    with open(path, "wb") as first, open(path, "rb") as second:
        path.unlink()
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return f"locks work in {path.parent}", None
    return "", error("flock_unsupported", f"Locks in {path.parent} do not exclude anybody.", path=str(path.parent))


def _free(root: Path) -> Tuple[str, Optional[Finding]]:
    room = probes.room(str(root))
    text = f"{room['free_bytes'] / 1e9:.1f} GB free on {room['mount']}"
    if room["free_bytes"] >= FREE_FLOOR:
        return text, None
    return text, warning("disk_space_insufficient", f"Only {text}.", path=str(root), actual=room["free_bytes"])


def _shared_memory() -> Tuple[str, Optional[Finding]]:
    if not Path("/dev/shm").is_dir():
        return "no /dev/shm here", None
    usage = shutil.disk_usage("/dev/shm")
    text = f"{usage.free / 1e9:.1f} GB free in /dev/shm"
    if usage.free >= SHARED_MEMORY:
        return text, None
    fix = "Start the container with a larger --shm-size, or remove what lies there."
    return text, warning("staging_filling", f"Only {text}.", path="/dev/shm", actual=usage.free, fix=fix)


def _port(number: int) -> Tuple[str, Optional[Finding]]:
    state = probes.port(number)
    if state["free"]:
        return f"port {number} is free", None
    who = state["owner"] or "another process"
    return "", error("port_in_use", f"Port {number} is taken by {who}.", path=str(number), actual=who)
