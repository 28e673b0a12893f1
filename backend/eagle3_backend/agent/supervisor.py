"""One attempt's supervisor: it runs the stage, keeps its heartbeat, ends it when asked, and writes how it ended.

Started as ``python -m eagle3_backend.agent.supervisor <run directory> <lock descriptors>`` by `launch`, it leaves its
parent behind and outlives the gateway, the link and the laptop.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from eagle3_backend.agent import cgroup, ending, launch, locks, processes
from eagle3_backend.agent.detach import become_subreaper, detached
from eagle3_backend.agent.gpu_memory import GpuMemory
from eagle3_backend.agent.heartbeat import Heartbeat
from eagle3_backend.agent.identity import identity_of
from eagle3_backend.agent.journal import Journal
from eagle3_backend.agent.ladder import KILL, MARKER, StopLadder, members_of
from eagle3_backend.agent.succession import Predecessor, not_brought_back
from eagle3_backend.agent.workspace import Workspace, read_json
from eagle3_backend.findings import Finding, FindingError, Severity, error, warning
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.states import RunState

TICK = 0.25
"""Seconds between looks at the cancel file."""
UNKILLABLE_SECONDS = 30.0
"""After this long under SIGKILL a process hangs in the kernel and will not end by waiting."""


class Supervisor:
    """Runs one attempt from its spec to its exit.json."""

    def __init__(self, directory: Path, descriptors: List[int], secrets: Mapping[str, str]) -> None:
        self.directory = directory
        self.workspace = Workspace(directory.parents[3])
        self.spec: Dict[str, Any] = read_json(directory / "spec.json") or {}
        self.generation = uuid.uuid4().hex
        self.journal = Journal(directory / "journal.jsonl", "supervisor")
        self.findings: List[Finding] = []
        self._descriptors = descriptors
        self._secrets = dict(secrets)
        self._started, self._mono = time.time(), time.monotonic()
        self._oom = cgroup.oom_kills()
        self._memory: Optional[GpuMemory] = None
        self._began: Optional[float] = None
        self._heartbeat = Heartbeat(directory)
        self._asked: Optional[Mapping[str, Any]] = None
        self._status: Optional[ending.Status] = None
        self._stage: Optional[subprocess.Popen[bytes]] = None
        self._ladder: Optional[StopLadder] = None
        after = self.spec.get("after")
        self._predecessor = Predecessor(self.workspace, after) if after else None
        self._wakeup = self._listen()

    def begin(self) -> None:
        """Start the stage, or have the attempt end whose place it takes.

        Raises FindingError, after writing the outcome, when that cannot be done.
        """
        if (self.directory / "exit.json").exists():
            # Whoever waited for us gave up and said so; a late start would contradict it.
            raise FindingError(error("start_failed", "This start was given up.", path=str(self.directory)))
        try:
            ending.reserve(self.directory)
            self._record(None)
            self._heartbeat.beat()
            if self._predecessor is None:
                self._start_stage()
            else:
                self._replace(self._predecessor)
        except (OSError, FindingError) as problem:
            raise self._failed(problem) from problem

    def watch(self) -> None:
        """Wait for the stage and everything it left, then write the outcome and start the next of the chain."""
        if self._predecessor is not None and not self._take_over(self._predecessor):
            return
        while True:
            self._reap()
            self._heartbeat.beat()
            if self._status is None:
                self._look_for_stop()
            elif not self._swept():
                pass
            else:
                break
            self._wait()
        self._conclude()

    def _replace(self, predecessor: Predecessor) -> None:
        """Ask the old attempt to end; what would keep this one from starting is found before."""
        program = str(self.spec["argv"][0])
        if shutil.which(program) is None:
            raise FindingError(_no_program(program, "it is no program"))
        by = (read_json(self.directory / "claim") or {}).get("by")
        # Whatever is started to end it is no part of this attempt.
        become_subreaper(False)
        told = predecessor.ask_to_end(f"{by}, for {self.spec['run']}")
        self._say(lambda: self.journal.note(told))

    def _take_over(self, predecessor: Predecessor) -> bool:
        """Start the stage once the old attempt has left; False when this one was asked to leave before, or cannot."""
        while not predecessor.has_ended():
            self._heartbeat.beat()
            if (self.directory / KILL).exists():
                break
            self._wait()
        asked = self._asked or read_json(self.directory / "cancel") or read_json(self.directory / KILL)
        if asked is not None:
            locks.release(self._descriptors)
            self._finish(RunState.STOPPED, "left before it began", [], ending.Status(None, None, asked=asked))
            return False
        become_subreaper(True)
        try:
            self._descriptors += locks.take(locks.gpus_of(self.spec), str(self.spec["run"]))
            self._start_stage()
        except (OSError, FindingError) as problem:
            locks.release(self._descriptors)
            self._failed(problem)
            return False
        return True

    def _start_stage(self) -> None:
        self._memory = GpuMemory([str(uuid) for uuid in self.spec.get("gpus") or ()])
        self._began = time.monotonic()
        self._spawn()
        stage = processes.read(self._stage.pid) if self._stage else None
        self._record(identity_of(stage) if stage else None)
        self._ladder = StopLadder(stage, self._members, self.spec)
        self._say(lambda: self.journal.state(RunState.RUNNING.value, attempt=self.spec.get("attempt")))

    def _failed(self, problem: Exception) -> FindingError:
        """Write that the start failed, and with what."""
        findings = problem.findings if isinstance(problem, FindingError) else (_of_system(problem, self.directory),)
        self._finish(RunState.FAILED, "start failed", list(findings), ending.Status(None, None))
        return FindingError(*findings)

    def _spawn(self) -> None:
        argv = [word.replace("{run_directory}", str(self.directory)) for word in self.spec["argv"]]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        log = os.open(self.directory / "output.log", flags, 0o600)
        try:
            self._stage = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=str(self.directory),
                start_new_session=True,
                pass_fds=self._descriptors,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as problem:
            raise FindingError(_no_program(argv[0], str(problem.strerror))) from problem
        finally:
            os.close(log)

    def _environment(self) -> Dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        payload = self.workspace.state / "payload" / str(self.spec.get("payload") or "-")[:12]
        environment.update(
            PYTHONPATH=str(payload if payload.is_dir() else launch.CODE_ROOT), PYTHONSAFEPATH="1", PYTHONUNBUFFERED="1"
        )
        environment.update({str(key): str(value) for key, value in (self.spec.get("env") or {}).items()})
        environment.update(self._secrets)
        environment[MARKER] = str(self.directory)
        return environment

    def _record(self, stage: Optional[Dict[str, Any]]) -> None:
        own = processes.read(os.getpid())
        write_json(
            self.directory / "supervisor.json",
            {
                "supervisor": identity_of(own) if own else None,
                "stage": stage,
                "waits_for": self._predecessor.run if self._predecessor and self._stage is None else None,
                "generation": self.generation,
                "started": self._started,
                "monotonic": self._mono,
                "began": self._began,
            },
        )

    def _members(self) -> List[processes.Process]:
        return members_of(os.getpid(), str(self.directory))

    def _look_for_stop(self) -> None:
        if self._asked is None and (self.directory / "cancel").exists():
            self._asked = read_json(self.directory / "cancel") or {}
        self._look_for_kill()
        if self._asked is not None and self._ladder is not None and self._ladder.advance():
            rung = self._ladder.rung
            self._say(lambda: self.journal.state(RunState.STOPPING.value, rung=rung, by=(self._asked or {}).get("by")))

    def _look_for_kill(self) -> None:
        if self._ladder is not None and (self.directory / KILL).exists():
            self._ladder.hurry = True
            # A stage that has ended by itself has its own outcome; only what it left is killed.
            self._asked = None if self._asked is None else {**self._asked, "kill": True}

    def _swept(self) -> bool:
        """Whether nothing of the attempt is left besides us; what is left is asked to end, then killed."""
        left = self._members()
        ladder = self._ladder
        if not left or ladder is None:
            return True
        if ladder.killing_since is not None and time.monotonic() - ladder.killing_since > UNKILLABLE_SECONDS:
            pids = [process.pid for process in left]
            self.findings.append(
                warning("process_unkillable", f"Processes {pids} do not end under SIGKILL.", actual=pids)
            )
            return True
        if ladder.rung < 2:
            self._say(lambda: self.journal.note(f"The stage left {len(left)} process(es) behind; ending them."))
            ladder.sweep()
        self._look_for_kill()
        ladder.advance()
        return False

    def _reap(self) -> None:
        """Collect every ended child: the stage itself, and orphans of it that came to us as their subreaper."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._stage is not None and pid == self._stage.pid:
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                code = None if number is not None else os.WEXITSTATUS(status)
                self._stage.returncode = -number if number is not None else code
                scale = 1 if sys.platform == "darwin" else 1024
                self._status = ending.Status(code, number, usage.ru_maxrss * scale)

    def _conclude(self) -> None:
        assert self._status is not None
        now = cgroup.oom_kills()
        kills = now - self._oom if now is not None and self._oom is not None else 0
        seen = self._status
        rung = self._ladder.rung if self._ladder and self._asked is not None else 0
        status = ending.Status(seen.code, seen.signal, seen.max_rss, self._asked, rung, max(0, kills))
        state, reason, findings = ending.judge(self.spec, status)
        self.findings += self._memory.findings() if self._memory else []
        locks.release(self._descriptors)
        following = self._start_next() if state is RunState.DONE else None
        self._finish(state, reason, findings, status)
        self._pass_on_stop(following)

    def _pass_on_stop(self, following: Optional[Path]) -> None:
        """A stop that came while the next attempt was being started is meant for that one."""
        asked = read_json(self.directory / "cancel")
        if following is not None and asked is not None:
            write_json(following / "cancel", asked)

    def _start_next(self) -> Optional[Path]:
        """Go on with the chain before this attempt reads as ended, so that no look finds the chain idle between.

        The run directory of the attempt that was started, or None.
        """
        rest = self.spec.get("then") or []
        if not rest or (self.directory / "cancel").exists():
            return None
        become_subreaper(False)
        spec = {**rest[0], "then": list(rest[1:])}
        # A repeat of the very same hand-over is recognised by this name, as that of a client is.
        request = f"{self.spec['run']}/{self.spec['attempt']}"
        try:
            answer = launch.start(self.workspace, spec, request=request, by="chain", secrets=self._secrets)
            self._say(lambda: self.journal.note(f"Next in the chain: {answer['run']} ({answer['state']})."))
            return self.workspace.attempt(answer["run"], answer["attempt"]) if answer["started"] else None
        except FindingError as problem:
            self.findings += problem.findings
        except OSError as problem:
            self.findings.append(_of_system(problem, self.directory))
        return None

    def _finish(self, state: RunState, reason: str, findings: List[Finding], status: ending.Status) -> None:
        of_stage = ending.stage_findings(self.directory / "journal.jsonl") if state is RunState.FAILED else []
        cause = _first_error([*of_stage, *(finding.to_json() for finding in findings)])
        reason = _first_error(of_stage) or reason
        if state is RunState.FAILED and (back := self._bring_back(cause or reason)):
            self.findings += back
            # First what serves now: the words of an engine may be long.
            reason = f"{_first_error([back[-1].to_json()])} {reason}"
        for finding in [*findings, *self.findings]:
            self._say(lambda finding=finding: self.journal.finding(finding))
        self._say(lambda: self.journal.state(state.value, reason=reason, code=status.code))
        ending.write_exit(
            self.directory,
            {
                "code": status.code,
                "signal": ending.signal_name(status.signal) if status.signal is not None else None,
                "state": state.value,
                "stopped_by": (status.asked or {}).get("by") if state is RunState.STOPPED else None,
                "reason": reason,
                "max_rss": status.max_rss,
                "started": self._started,
                "ended": time.time(),
                "mono_elapsed": time.monotonic() - self._mono,
                "findings": [finding.to_json() for finding in [*findings, *self.findings]] + of_stage,
            },
        )
        if self._predecessor is not None:
            self._pass_on_stop(self._predecessor.again)

    def _bring_back(self, reason: str) -> List[Finding]:
        """Have the attempt whose place this one took serve again, unless this one served, or was asked to leave."""
        if self._predecessor is None or self._asked is not None or (self.directory / "cancel").exists():
            return []
        become_subreaper(False)
        try:
            return self._predecessor.bring_back(self.directory, self.spec, reason, self._secrets)
        except OSError as problem:
            return [_of_system(problem, self.directory), not_brought_back(self._predecessor.run)]

    @staticmethod
    def _say(write: Any) -> None:
        """A full disk costs journal lines of ours, never the supervision itself."""
        try:
            write()
        except OSError:
            pass

    def _listen(self) -> int:
        """Turn signals into bytes on a pipe; its reading end."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Handlers, not SIG_IGN: what is ignored stays ignored in the stage.
        signal.signal(signal.SIGHUP, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, _: self._ask(got))
        return reader

    def _ask(self, number: int) -> None:
        if self._asked is None:
            self._asked = {"by": f"{ending.signal_name(number)} to the supervisor"}

    def _wait(self) -> None:
        if select.select([self._wakeup], [], [], TICK)[0]:
            try:
                os.read(self._wakeup, 4096)
            except BlockingIOError:
                pass


def _first_error(findings: List[Dict[str, Any]]) -> str:
    return next((f"{entry['code']}: {entry['message']}" for entry in findings if "message" in entry), "")


def _no_program(program: str, why: str) -> Finding:
    return error(
        "environment_missing",
        f"{program} cannot be started: {why}.",
        path=program,
        fix="Run setup again, or correct the environment in the profile.",
    )


def _of_system(problem: Exception, path: Path) -> Finding:
    """What the system said, under the code that fits."""
    if getattr(problem, "errno", None) == 28:
        return error("disk_space_insufficient", f"No space left: {problem}.", path=str(path), fix="Make room there.")
    return Finding("host_io_error", Severity.ERROR, f"{problem}.", path=str(path))


def main() -> int:
    directory = Path(sys.argv[1])
    descriptors = [int(word) for word in sys.argv[2].split(",") if word]

    def work(request: Dict[str, Any], ready: Any) -> None:
        become_subreaper(True)
        try:
            supervisor = Supervisor(directory, descriptors, request.get("secrets") or {})
            supervisor.begin()
        except (FindingError, OSError) as problem:
            ready(problem.findings[0] if isinstance(problem, FindingError) else _of_system(problem, directory))
            return
        ready(None)
        supervisor.watch()

    return detached(work, keep=descriptors, log=directory / "supervisor.log")


if __name__ == "__main__":
    sys.exit(main())
