"""Leaving the process that started us: own session, no terminal, no descriptor that makes somebody wait."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from eagle3_backend.agent.processes import LINUX
from eagle3_backend.findings import Finding

_PR_SET_CHILD_SUBREAPER = 36

Ready = Callable[[Optional[Finding]], None]


def become_subreaper(wanted: bool) -> bool:
    """Have orphans below us come to us and not to PID 1; False where the system cannot do that (not Linux)."""
    if not LINUX:
        return False
    return ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0


def detached(work: Callable[[Dict[str, Any], Ready], None], *, keep: List[int], log: Path) -> int:
    """Read one JSON request from standard input and do ``work(request, ready)`` in a process of its own.

    This process lasts until ``ready`` was called there (or the work failed): it then prints {"finding": … | null} and
    returns its exit code. Descriptors in ``keep`` stay open over there; a traceback lands in ``log``.
    """
    request = json.load(sys.stdin)
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        for descriptor in keep:
            os.close(descriptor)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        sys.stdout.write(answer.decode() or "null")
        return 0
    os.setsid()
    # The second fork: no session leader, so no terminal can ever become ours.
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    _redirect(log)
    _close_others({0, 1, 2, writer, *keep})
    code = 1
    try:
        work(request, lambda finding: _tell(writer, finding))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(errors, 2)


def _close_others(keep: set) -> None:
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd" if LINUX else "/dev/fd")]
    except OSError:
        descriptors = list(range(1024))
    for descriptor in descriptors:
        if descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                pass


def _tell(writer: int, finding: Optional[Finding]) -> None:
    os.write(writer, json.dumps({"finding": finding.to_json() if finding else None}).encode())
    os.close(writer)
