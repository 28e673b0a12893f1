"""Starting an attempt exactly once: skip what is fresh, lock, claim, hand over to a supervisor of its own."""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.agent import ending, locks, runs
from eagle3_backend.agent.identity import this_host
from eagle3_backend.agent.workspace import Workspace, read_json
from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.states import RunState

HANDSHAKE_SECONDS = 30.0
CODE_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds our packages: the unpacked payload."""


def start(
    workspace: Workspace,
    spec: Mapping[str, Any],
    *,
    request: str,
    by: str = "",
    secrets: Optional[Mapping[str, str]] = None,
    restart: bool = False,
    attempt: Optional[int] = None,
    asked_ago: float = 0.0,
) -> Dict[str, Any]:
    """Start ``spec`` as its next (or the given) attempt, unless it is at work or was started by this request already.

    A spec whose artifact is fresh is skipped for the next of its chain, unless ``restart`` sets the artifact aside.
    With ``after`` in it, an attempt, it takes that one's place: see `succession`.
    ``secrets`` go into the child's environment and nowhere else; the claim says that this was wanted ``asked_ago``
    seconds before, by the asker's own clock. Returns {run, attempt, started, state}.
    Raises FindingError.
    """
    asked = time.monotonic() - max(0.0, asked_ago)
    _check(workspace, spec)
    _need_psutil()
    for entry in (spec, *(spec.get("then") or ())):
        # Its first answer may have been lost, and the chain may have moved on since.
        there = _of_request(workspace, str(entry.get("run")), request)
        if there is not None:
            return there
    while not restart and ending.is_fresh(spec):
        rest = spec.get("then") or []
        if not rest:
            newest = workspace.attempts(spec["run"])
            return _answer(spec["run"], newest[-1] if newest else 0, False, RunState.DONE)
        spec = {**rest[0], "then": list(rest[1:])}
        _check(workspace, spec)
    run = str(spec["run"])
    there = _already_there(workspace, run, request, attempt)
    if there is not None:
        return there
    wanted = _locks_of(workspace, spec)
    try:
        descriptors = locks.take(wanted, run)
    except FindingError as problem:
        # Whoever holds the artifact is about to claim, or just did: a second start of the same run is not an error.
        # With anything else missing the artifact was ours for a moment, so nobody else is starting this run.
        of_other = problem.findings[0].code in locks.IN_USE.values()
        there = None if of_other else _wait_for_claim(workspace, run, request, attempt)
        if there is None:
            raise
        return there
    try:
        # Between the first look and the lock another start may have come and gone.
        there = _already_there(workspace, run, request, attempt)
        if there is not None:
            return there
        if restart:
            _set_aside(Path(spec["output"]))
        number = _claim(workspace, run, attempt, request, by, asked)
        return _hand_over(workspace, spec, number, descriptors, secrets or {})
    finally:
        locks.release(descriptors)


def _locks_of(workspace: Workspace, spec: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """What has to be held from now on; whoever takes another's place gets the GPUs when that one has left them."""
    after = spec.get("after")
    if after is None:
        return [locks.artifact_of(spec), *locks.gpus_of(spec)]
    return [locks.artifact_of(spec), locks.place_of(workspace.existing(after["run"], after["attempt"]))]


def _answer(run: str, attempt: int, started: bool, state: RunState) -> Dict[str, Any]:
    return {"run": run, "attempt": attempt, "started": started, "state": state.value}


def _check(workspace: Workspace, spec: Mapping[str, Any]) -> None:
    argv = spec.get("argv")
    output = os.path.abspath(str(spec.get("output") or ""))
    after = spec.get("after")
    named = isinstance(after, dict) and isinstance(after.get("run"), str) and isinstance(after.get("attempt"), int)
    problems = [
        ("run", isinstance(spec.get("run"), str), "a name"),
        ("argv", isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv), "a list of words"),
        ("output", output.startswith(f"{workspace.root}{os.sep}"), f"a path under {workspace.root}"),
        ("then", all(isinstance(entry, dict) for entry in spec.get("then") or ()), "a list of specs"),
        ("after", after is None or named, "a run and an attempt"),
    ]
    for name, right, wanted in problems:
        if not right:
            raise FindingError(
                error(
                    "spec_invalid",
                    f"The field {name} of the spec has to be {wanted}.",
                    path=name,
                    expected=wanted,
                    actual=str(spec.get(name))[:200],
                )
            )
    workspace.attempt(spec["run"], 1)


def _need_psutil() -> None:
    try:
        importlib.import_module("psutil")
    except ImportError as problem:
        raise FindingError(without_psutil(problem)) from problem


def without_psutil(problem: ImportError) -> Finding:
    """The finding for an interpreter without psutil, which is compiled and cannot travel with our code."""
    return error(
        "psutil_missing",
        f"{sys.executable} has no working psutil: {problem}.",
        path=sys.executable,
        fix=f"{sys.executable} -m pip install psutil",
    )


def _of_request(workspace: Workspace, run: str, request: str) -> Optional[Dict[str, Any]]:
    """The answer for the attempt of ``run`` that this very request claimed, or None."""
    for number in workspace.attempts(run):
        claim = read_json(workspace.attempt(run, number) / "claim") or {}
        if request and claim.get("request") == request:
            return _answer(run, number, False, runs.describe(workspace, run, number).state)
    return None


def _already_there(workspace: Workspace, run: str, request: str, attempt: Optional[int]) -> Optional[Dict[str, Any]]:
    """The answer for an attempt that this start must not double, or None. Raises FindingError for one elsewhere."""
    there = _of_request(workspace, run, request)
    numbers = workspace.attempts(run)
    if there is not None or not numbers:
        return there
    if attempt is not None and attempt in numbers:
        return _answer(run, attempt, False, runs.describe(workspace, run, attempt).state)
    newest = runs.describe(workspace, run, numbers[-1])
    if newest.state.is_active:
        return _answer(run, numbers[-1], False, newest.state)
    blocking = [finding for finding in newest.findings if finding.code in ("remote_process_orphaned", "run_elsewhere")]
    if blocking:
        raise FindingError(*blocking)
    return None


def _wait_for_claim(workspace: Workspace, run: str, request: str, attempt: Optional[int]) -> Optional[Dict[str, Any]]:
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        there = _already_there(workspace, run, request, attempt)
        if there is not None:
            return there
        time.sleep(0.05)
    return None


def _set_aside(output: Path) -> None:
    if output.exists():
        output.rename(output.with_name(f"{output.name}.old-{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**6}"))


def _claim(workspace: Workspace, run: str, attempt: Optional[int], request: str, by: str, asked: float) -> int:
    """Make the run directory and its ``claim``, which only one can; the attempt's number."""
    numbers = workspace.attempts(run)
    number = attempt or (numbers[-1] + 1 if numbers else 1)
    claim = {"request": request, "by": by, "host": this_host().to_json(), "wall": time.time()}
    text = json.dumps({**claim, "monotonic": time.monotonic(), "asked": asked}).encode()
    while True:
        directory = workspace.attempt(run, number)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(directory / "claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        return number


def _hand_over(
    workspace: Workspace, spec: Mapping[str, Any], number: int, descriptors: List[int], secrets: Mapping[str, str]
) -> Dict[str, Any]:
    run = str(spec["run"])
    directory = workspace.attempt(run, number)
    write_json(directory / "spec.json", {**spec, "attempt": number})
    words = [str(directory), ",".join(map(str, descriptors))]
    problem = detach("eagle3_backend.agent.supervisor", words, {"secrets": dict(secrets)}, descriptors)
    if problem is None:
        return _answer(run, number, True, runs.describe(workspace, run, number).state)
    if not (directory / "exit.json").exists() and not (directory / "supervisor.json").exists():
        # Nobody is there to say so: otherwise the claim would look like a start under way.
        outcome = {"code": None, "signal": None, "state": "failed", "reason": "start failed", "ended": time.time()}
        ending.write_exit(directory, {**outcome, "findings": [problem.to_json()]})
    raise FindingError(problem)


def detach(module: str, words: List[str], request: Dict[str, Any], descriptors: List[int]) -> Optional[Finding]:
    """Run one of our modules away from this process; None once it says that it is at work, else what went wrong.

    ``request`` travels through its standard input, so that secrets are in no argument and no file.
    """
    command = [*_scope(), sys.executable, "-m", module, *words]
    environment = {**os.environ, "PYTHONPATH": str(CODE_ROOT), "PYTHONSAFEPATH": "1"}
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd="/",
        start_new_session=True,
        pass_fds=descriptors,
    )
    try:
        output, _ = child.communicate(json.dumps(request).encode(), timeout=HANDSHAKE_SECONDS)
        answer = json.loads(output)
        return Finding.from_json(answer["finding"]) if answer.get("finding") else None
    except (ValueError, KeyError, AttributeError, subprocess.TimeoutExpired) as problem:
        child.kill()
        child.wait()
        return error(
            "start_failed",
            f"The supervisor did not come up ({type(problem).__name__}, exit {child.returncode}).",
            path=words[0],
            fix="Read supervisor.log in the run directory.",
        )


@functools.lru_cache(maxsize=1)
def _scope() -> List[str]:
    """Words before a command that keep a logout from ending it (KillUserProcesses=yes), where systemd offers that."""
    program = shutil.which("systemd-run")
    if program is None or "XDG_RUNTIME_DIR" not in os.environ:
        return []
    words = [program, "--user", "--scope", "--quiet", "--collect", "--"]
    try:
        trial = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return words if trial.returncode == 0 else []
