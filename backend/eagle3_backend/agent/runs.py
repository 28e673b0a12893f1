"""What is true of each attempt, read from its run directory and the kernel; silence is never an end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.agent import processes
from eagle3_backend.agent.heartbeat import STALE, Beat, last_beat
from eagle3_backend.agent.identity import Host, living, this_host
from eagle3_backend.agent.ladder import members_of
from eagle3_backend.agent.workspace import Workspace, read_json
from eagle3_backend.findings import Finding, error, warning
from eagle3_backend.states import RunState

CLAIM_SECONDS = 30.0
"""A claim without a supervisor for this long is a start that failed."""


@dataclass(frozen=True)
class Description:
    """One attempt. Times are the host's: wall seconds, ages and durations from its monotonic clock."""

    run: str
    attempt: int
    state: RunState
    remark: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    claim: Mapping[str, Any] = field(default_factory=dict)
    started: Optional[float] = None
    elapsed: Optional[float] = None
    heartbeat_age: Optional[float] = None
    exit: Optional[Mapping[str, Any]] = None
    findings: Tuple[Finding, ...] = ()
    orphans: Tuple[processes.Process, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """The shape of an entry of the gateway's ``runs``."""
        ended = self.exit or {}
        return {
            "run": self.run,
            "attempt": self.attempt,
            "stage": self.spec.get("stage"),
            "campaign": Path(str(self.spec.get("output") or "")).parent.parent.name,
            "fingerprint": self.spec.get("fingerprint"),
            "state": self.state.value,
            "remark": self.remark,
            "started": self.started,
            "ended": ended.get("ended"),
            "elapsed": self.elapsed,
            "heartbeat_age": self.heartbeat_age,
            "exit": self.exit,
            "then": [entry.get("stage") for entry in self.spec.get("then") or ()] if self.state.is_active else [],
            "claim_by": self.claim.get("by"),
            "request": self.claim.get("request"),
            "findings": [finding.to_json() for finding in self.findings],
        }


def describe(workspace: Workspace, run: str, attempt: int) -> Description:
    """Judge one attempt by the first rule that applies, in the order of this function's lines."""
    directory = workspace.attempt(run, attempt)
    known: Dict[str, Any] = {
        "run": run,
        "attempt": attempt,
        "spec": read_json(directory / "spec.json") or {},
        "claim": read_json(directory / "claim") or {},
    }
    supervisor = read_json(directory / "supervisor.json")
    owner = _owner(supervisor, known["claim"])
    known["started"] = (supervisor or known["claim"]).get("started", known["claim"].get("wall"))
    ended = _exit(directory)
    if ended is not None:
        return Description(state=RunState(ended["state"]), remark=ended.get("reason") or "", exit=ended, **known)
    if owner is not None and owner != this_host():
        return _judge_elsewhere(owner, workspace, last_beat(directory), known)
    if supervisor is None:
        return _judge_claim(directory, known)
    return _judge_here(directory, supervisor, known)


def _exit(directory: Path) -> Optional[Dict[str, Any]]:
    """The outcome, if it can be read and is one."""
    ended = read_json(directory / "exit.json")
    try:
        return ended if ended and RunState(ended.get("state")).is_ended else None
    except ValueError:
        return None


def _owner(supervisor: Optional[Mapping[str, Any]], claim: Mapping[str, Any]) -> Optional[Host]:
    record = (supervisor or {}).get("supervisor") or claim.get("host")
    return Host.from_json(record) if isinstance(record, dict) else None


def _judge_here(directory: Path, supervisor: Mapping[str, Any], known: Dict[str, Any]) -> Description:
    beat = last_beat(directory)
    age = time.monotonic() - beat.monotonic if beat else None
    known["heartbeat_age"] = age
    silent = age is None or age > STALE
    if living(supervisor.get("supervisor")) is not None:
        began = supervisor.get("monotonic")
        waiting = supervisor.get("waits_for")
        state = RunState.STARTING if waiting else RunState.RUNNING
        state = RunState.STOPPING if (directory / "cancel").exists() else state
        remark = f"waits for the end of {waiting}" if waiting else ""
        remark = f"no heartbeat for {age:.0f} s" if silent and age is not None else remark
        elapsed = time.monotonic() - began if isinstance(began, (int, float)) else None
        return Description(state=state, remark=remark, elapsed=elapsed, **known)
    orphans = orphans_of(directory, supervisor)
    # The supervisor may have written its outcome and left between our two looks.
    ended = _exit(directory)
    if ended is not None:
        return Description(state=RunState(ended["state"]), remark=ended.get("reason") or "", exit=ended, **known)
    if orphans:
        return _orphaned(orphans, known)
    if (directory / "exit.json").exists():
        return Description(state=RunState.UNKNOWN, remark="exit.json cannot be read", **known)
    if silent:
        return Description(state=RunState.CRASHED, remark=_last_word(beat), **known)
    return Description(state=RunState.UNKNOWN, remark="the supervisor is gone without an outcome", **known)


def orphans_of(directory: Path, supervisor: Mapping[str, Any]) -> List[processes.Process]:
    """What still works for an attempt whose supervisor is gone: the stage, its descendants, and marked workers."""
    stage = living(supervisor.get("stage"))
    members = members_of(stage.pid if stage else None, str(directory))
    if stage is not None and stage.pid not in {process.pid for process in members}:
        members.append(stage)
    # Without a command line a process is at its end: its memory is gone, and only the kernel still holds its number.
    return [process for process in members if processes.command_line(process.pid) or not processes.LINUX]


def _orphaned(orphans: List[processes.Process], known: Dict[str, Any]) -> Description:
    listed = [{"pid": process.pid, "command": processes.command_line(process.pid)} for process in orphans]
    finding = error(
        "remote_process_orphaned",
        f"The supervisor of {known['run']} is gone, while {len(orphans)} process(es) of it work on; "
        "their exit status will not be known.",
        path=known["run"],
        actual=listed,
        fix="Let them finish, or stop the run to end them, then resume.",
    )
    remark = f"supervisor gone, {len(orphans)} process(es) work on"
    return Description(state=RunState.UNKNOWN, remark=remark, findings=(finding,), orphans=tuple(orphans), **known)


def _judge_claim(directory: Path, known: Dict[str, Any]) -> Description:
    """An attempt whose supervisor has not said a word yet, or whose supervisor.json is torn."""
    if (directory / "supervisor.json").exists():
        orphans = orphans_of(directory, {})
        if orphans:
            return _orphaned(orphans, known)
        return Description(state=RunState.UNKNOWN, remark="supervisor.json cannot be read", **known)
    claimed = known["claim"].get("monotonic")
    if isinstance(claimed, (int, float)):
        age = time.monotonic() - claimed
    else:
        # Torn while being written, or written by something else: only its wall time is left.
        age = time.time() - (directory / "claim").stat().st_mtime
    if age < CLAIM_SECONDS:
        return Description(state=RunState.STARTING, **known)
    return Description(state=RunState.CRASHED, remark="failed start: claimed, but no supervisor came", **known)


def _judge_elsewhere(owner: Host, workspace: Workspace, beat: Optional[Beat], known: Dict[str, Any]) -> Description:
    """An attempt of another machine, boot or container that used this workspace."""
    here = this_host()
    if {owner.boot_id, owner.host_name} & workspace.replaced():
        return Description(state=RunState.LOST, remark=f"host {owner.host_name} was replaced", **known)
    if owner.host_name == here.host_name and owner.boot_id != here.boot_id:
        up = time.time() - time.monotonic()
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(up))
        return Description(state=RunState.LOST, remark=f"host rebooted at {when}", **known)
    # Same boot: its monotonic clock is ours, and a container that ended leaves a heartbeat that stays behind.
    silent = beat is None or time.monotonic() - beat.monotonic > STALE
    if owner.boot_id == here.boot_id and owner.host_name == here.host_name and silent:
        return Description(state=RunState.LOST, remark="the container was restarted", **known)
    finding = warning(
        "run_elsewhere",
        f"This attempt belongs to host {owner.host_name}, which alone can judge or stop it.",
        path=known["run"],
        actual=owner.host_name,
        fix="Look there; if that host is gone for good, say so with `hosts rebind`.",
    )
    return Description(state=RunState.UNKNOWN, remark=f"on host {owner.host_name}", findings=(finding,), **known)


def _last_word(beat: Optional[Beat]) -> str:
    if beat is None:
        return "supervisor gone, no heartbeat"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(beat.wall))
    return f"supervisor and stage gone, last heartbeat {when}"


def _is_final(description: Description) -> bool:
    """Nothing on this host can change it any more. A failed start may be a slow one, which has no heartbeat yet."""
    if description.state is RunState.CRASHED:
        return description.heartbeat_age is not None
    return description.state.is_ended


class RunList:
    """The list of all attempts; what has ended is read once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._ended: Dict[Tuple[str, int], Description] = {}

    def read(self) -> List[Description]:
        found = []
        for run in self._workspace.run_names():
            for attempt in self._workspace.attempts(run):
                description = self._ended.get((run, attempt)) or describe(self._workspace, run, attempt)
                if _is_final(description):
                    self._ended[run, attempt] = description
                found.append(description)
        return found
