"""How an attempt ended: from what kernel and disk say to the state, the reason and the findings of exit.json."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.findings import Finding, Severity, error, warning
from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.states import EXIT_STOPPED, RunState

RESERVED = 64 * 1024
"""Bytes set aside at the start so that a full disk does not swallow the outcome."""


@dataclass(frozen=True)
class Status:
    """What was seen of the first process: exit code or signal number, its peak memory, and what happened around it."""

    code: Optional[int]
    signal: Optional[int]
    max_rss: int = 0
    """Peak resident memory in bytes."""
    asked: Optional[Mapping[str, Any]] = None
    """The stop request, if there was one."""
    rung: int = 0
    """The highest rung of the stop ladder that was taken."""
    oom_kills: int = 0
    """Processes of our control group that the kernel killed for want of memory meanwhile."""

    def describe(self) -> str:
        return signal_name(self.signal) if self.signal is not None else f"exit {self.code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def makes_artifact(spec: Mapping[str, Any]) -> bool:
    stage = STAGES.get(str(spec.get("stage")))
    return stage is not None and stage.makes is not None


def is_fresh(spec: Mapping[str, Any]) -> bool:
    """Whether the artifact that this spec makes is there and whole."""
    if not makes_artifact(spec):
        return False
    manifest = read_manifest(Path(spec["output"]))
    return manifest is not None and manifest.get("fingerprint") == spec.get("fingerprint")


def judge(spec: Mapping[str, Any], status: Status) -> Tuple[RunState, str, List[Finding]]:
    """State, reason (one line for people) and findings. Reads the artifact's manifest and nothing else.

    An end without a stop request is done only with exit 0 and, where the stage makes an artifact, a whole one.
    """
    if status.code == 0 and (not makes_artifact(spec) or is_fresh(spec)):
        return RunState.DONE, "", []
    if status.asked is not None:
        return RunState.STOPPED, _stopped_reason(status), []
    if status.code == EXIT_STOPPED:
        return RunState.STOPPED, "saved and left", []
    if status.code == 0:
        finding = error(
            "artifact_incomplete",
            f"The stage ended without an error, but {spec['output']} has no whole manifest.",
            path=str(spec["output"]),
            fix="Read the log, then resume.",
        )
        return RunState.FAILED, "exit 0, artifact incomplete", [finding]
    # A launcher passes the end of its worker on as 128 + signal.
    number = status.signal if status.signal is not None else (status.code or 0) - 128
    if number == signal.SIGKILL:
        return RunState.FAILED, "SIGKILL, likely out of memory", [_killed(status)]
    if number == signal.SIGBUS:
        finding = error(
            "exit_sigbus",
            "A process ended by SIGBUS: a mapped file or shared memory had no room behind it.",
            actual=status.describe(),
            fix="Look at /dev/shm and the disk of the workspace.",
        )
        return RunState.FAILED, "SIGBUS", [finding]
    findings = [_oom_around(status)] if status.oom_kills else []
    return RunState.FAILED, status.describe(), findings


def _stopped_reason(status: Status) -> str:
    if status.rung >= 3 and (status.asked or {}).get("kill"):
        return f"killed as asked ({status.describe()})"
    if status.rung >= 3:
        return f"did not leave in time, killed ({status.describe()})"
    return "saved and left" if status.code == EXIT_STOPPED else f"left when asked ({status.describe()})"


def _killed(status: Status) -> Finding:
    proof = (
        f"the kernel counted {status.oom_kills} out-of-memory kill(s) in this group meanwhile"
        if status.oom_kills
        else "nobody here sent the signal; the kernel does so when memory runs out"
    )
    return error(
        "killed_by_kernel",
        f"The stage was killed with SIGKILL: {proof}.",
        actual=status.describe(),
        fix="Lower what the stage holds in memory (batch, context, concurrency), or free memory, then resume.",
    )


def _oom_around(status: Status) -> Finding:
    return warning(
        "killed_by_kernel",
        f"While the stage ran, the kernel killed {status.oom_kills} process(es) for want of memory; "
        "one of them may have been a worker of it.",
        actual=status.oom_kills,
    )


def stage_findings(journal: Path, limit: int = 8) -> List[Dict[str, Any]]:
    """The errors that the stage itself reported last, newest last, from the end of its journal."""
    try:
        with open(journal, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 256 * 1024))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
            if entry["w"] == "stage" and entry["kind"] == "finding" and entry["severity"] == Severity.ERROR.value:
                found.append({name: entry[name] for name in Finding.__dataclass_fields__ if name in entry})
        except (ValueError, KeyError, TypeError):
            continue
    return found[-limit:]


def reserve(directory: Path) -> None:
    """Set the outcome's room aside, under a name that is not the outcome's. Raises OSError when there is none."""
    descriptor = os.open(directory / "exit.reserved", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, RESERVED)
        else:
            os.write(descriptor, b"\0" * RESERVED)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_exit(directory: Path, outcome: Mapping[str, Any]) -> None:
    """Write the outcome into the reserved room and rename it: it needs no free block and is never seen in part."""
    data = json.dumps(outcome, indent=1, default=str).encode("ascii")
    if len(data) > RESERVED:
        data = json.dumps({**outcome, "findings": []}, default=str).encode("ascii")
    descriptor = os.open(directory / "exit.reserved", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(directory / "exit.reserved", directory / "exit.json")
