"""An engine as a child of a stage: started on a free port, ready only when it has really answered, ended in every case.

    with EngineProcess(plan, model=path, context=context) as engine:
        request(engine.port, engine.api_key, "POST", "/v1/chat/completions", body)
        engine.check()

The server runs in a session of its own, so that a stop request reaches the stage first, which saves and then ends it.
Its output goes through a pipe to the stage's own output, untouched, and is read on the way for phases and causes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from eagle3_backend.engines.log_lines import Mask
from eagle3_backend.engines.log_metrics import LogWindows
from eagle3_backend.engines.plan import SERVED_NAME
from eagle3_backend.engines.server_log import ServerLog
from eagle3_backend.engines.taken import check_taken
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.engine_http import RequestRefused, in_background, request

PORT_TRIES = 3
POLL = 0.2
END_SECONDS = 30.0
"""Wait between the group's SIGTERM and its SIGKILL."""
LOADING_END_SECONDS = 5.0
"""The same for one that has answered nobody yet: it has nothing to finish, and vLLM does not hear while it loads."""
DEATH_SECONDS = 10.0
"""After a failed request: how long to wait for the engine's own word on it. A dying server ends some seconds later."""
ANSWER_SECONDS = 120.0
"""A first completion that takes longer than this is told to hang; it is waited for all the same."""
FIRST_ANSWER = "first completion"
BLOCK = 64 * 1024
"""Bytes of output taken at once."""


class EngineProcess:
    """A private server on 127.0.0.1. Entering starts it and waits until it is ready; leaving ends it.

    ``plan`` is a launch plan (`engines.plan`), ``model`` the target's directory. Entering raises FindingError with
    the first cause when the server fails, or took something else than the plan says (unless that is accepted), and
    `Stopped` when the stage is asked to leave meanwhile. ``port`` is the one to listen on if nobody else does,
    ``api_key`` the one to ask for, else a new one.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        *,
        model: str,
        context: StageContext,
        port: int | None = None,
        api_key: str = "",
    ) -> None:
        self._plan = plan
        self._model = model
        self._context = context
        self.api_key = api_key or secrets.token_urlsafe(24)
        self.port = 0
        self._wanted_port = port
        self.start_seconds = 0.0
        self.spawned = self.said_ready = self.answered = 0.0
        """Monotonic seconds: the process was started, its log said that it is ready, its first answer was whole."""
        self._weights_bytes = sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))
        self._key_file = context.run_directory / "engine.yaml"
        self.log = ServerLog(plan["engine"])
        self.windows = LogWindows(plan["expects"].get("depth"))
        """What the log tells of acceptance since the start."""
        self._heard = time.monotonic()
        self._said = threading.Event()
        self._foreign: Finding | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> EngineProcess:
        begin = time.monotonic()
        try:
            for _ in range(PORT_TRIES):
                self._launch()
                if self._wait_until_ready():
                    self._context.refuse(*check_taken(self._plan["expects"], self.log.facts))
                    self.start_seconds = time.monotonic() - begin
                    self._context.journal.note(f"Engine ready on port {self.port} after {self.start_seconds:.0f} s")
                    return self
                self._end()
            raise FindingError(self._foreign or self.log.finding())
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """Process id of the server, which is also its session and process group."""
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Raise FindingError with the log's first cause when the server, or a worker of it, is gone."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self._drain()
            raise FindingError(self.log.finding(code))

    def _launch(self) -> None:
        wanted, self._wanted_port = self._wanted_port, None
        self.port = wanted if wanted is not None and port_is_free(wanted) else free_port()
        self.log = ServerLog(self._plan["engine"])
        self.windows = LogWindows(self._plan["expects"].get("depth"))
        self._foreign = None
        self._heard = time.monotonic()
        cores = len(os.sched_getaffinity(0))
        values = {
            "{port}": str(self.port),
            "{model}": self._model,
            "{config}": str(self._key_file),
            "{cores}": str(cores),
            "{cores-1}": str(max(1, cores - 1)),
        }
        env = {name: values.get(value, value) for name, value in self._plan["env"].items()}
        env.update(self._hand_over_key())
        self.spawned, self.said_ready, self.answered = time.monotonic(), 0.0, 0.0
        self._said.clear()
        self._process = subprocess.Popen(
            [values.get(word, word) for word in self._plan["argv"]],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="engine-log", daemon=True)
        self._reader.start()
        self._context.engine_starts += 1
        self._context.journal.note(f"Starting the engine on port {self.port}, process {self._process.pid}")

    def _hand_over_key(self) -> dict[str, str]:
        """The variable that gives the server its key, or none where a file does."""
        way = self._plan["api_key"]
        if "variable" in way:
            return {way["variable"]: self.api_key}
        self._key_file.unlink(missing_ok=True)
        descriptor = os.open(self._key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f'{way["file"]}: "{self.api_key}"\n')
        return {}

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Pass the output on without the key, and look at its lines."""
        assert process.stdout is not None
        mask = Mask(self.api_key)
        while block := os.read(process.stdout.fileno(), BLOCK):
            self._heard = time.monotonic()
            self._pass_on(mask.feed(block))
        self._pass_on(mask.close())
        self.log.close()

    def _pass_on(self, data: bytes) -> None:
        os.write(sys.stdout.fileno(), data)
        self.windows.feed_bytes(data)
        phases = self.log.feed_bytes(data)
        if self.log.ready_marker and not self.said_ready:
            self.said_ready = time.monotonic()
            self._said.set()
        for phase in phases:
            self._context.journal.note(f"Engine: {phase}")

    def _drain(self) -> None:
        """Let the reader see the end of the output: the cause often stands in the last lines."""
        if self._reader is not None:
            self._reader.join(timeout=5)

    def _wait_until_ready(self) -> bool:
        """True when the server has answered; False when another process took the port. Raises FindingError, Stopped."""
        assert self._process is not None
        reported = ""
        trial: Future[bool] | None = None
        while True:
            self._context.leave_if_asked()
            code = self._process.poll()
            if code is not None or self.log.failed:
                if code is not None:
                    self._drain()
                finding = self.log.finding(code)
                if finding.code == "port_in_use":
                    return False
                raise FindingError(finding)
            if trial is not None and trial.done():
                if trial.result():
                    return True
                trial = None
                time.sleep(POLL)
            if self._foreign is not None:
                return False
            if trial is None and self.log.ready_marker:
                trial = in_background(self._answers)
            if self.log.phase != reported:
                # Slow is no hang: a phase has the time that it takes, and loading that of its bytes. Nothing is ended.
                found = self.log.diagnose(silence=time.monotonic() - self._heard, weights_bytes=self._weights_bytes)
                if found.state == "hung":
                    reported = self.log.phase
                    self._context.report(*found.findings)
            if self.said_ready and reported != FIRST_ANSWER and time.monotonic() - self.said_ready > ANSWER_SECONDS:
                reported = FIRST_ANSWER
                self._context.report(_unanswered(time.monotonic() - self.said_ready))
            if trial is not None:
                futures.wait([trial], timeout=POLL)
            else:
                self._said.wait(POLL)

    def _answers(self) -> bool:
        """Our own server lists our model and ends a real completion: a foreign one on the port would do neither."""
        if not self._is_ours():
            return False
        try:
            body = {
                "model": SERVED_NAME,
                "messages": [{"role": "user", "content": "Count from one to twenty."}],
                "temperature": 0,
                "max_tokens": 16,
                "min_tokens": 8,
            }
            answer = request(self.port, self.api_key, "POST", "/v1/chat/completions", body)
        except OSError:
            return False
        except RequestRefused as problem:
            raise FindingError(
                error(
                    "engine_failed",
                    f"The engine started but refused its first completion: {problem}",
                    path="engine",
                    actual=problem.status,
                    fix="A target without a chat template cannot be asked; else read the engine's lines in the log.",
                )
            ) from problem
        self.answered = time.monotonic()
        return int(answer["usage"]["completion_tokens"]) >= 8

    def _is_ours(self) -> bool:
        """Whether who answers takes our key and lists our model; somebody else is kept as a finding."""
        try:
            listed = request(self.port, self.api_key, "GET", "/v1/models", timeout=30)
            names = [entry["id"] for entry in listed["data"]]
        except OSError:
            return False
        except RequestRefused as problem:
            if problem.status >= 500:
                return False  # ours, and not there yet
            names = [str(problem)]
        except (ValueError, KeyError, TypeError) as problem:
            names = [repr(problem)]
        self._foreign = None
        if SERVED_NAME not in names:
            self._foreign = error(
                "port_in_use",
                f"Another server answers on port {self.port}: it serves {names}, not '{SERVED_NAME}'.",
                path="--port",
                expected=SERVED_NAME,
                actual=names,
                fix="End that server; it took the port between our choice and the engine's own start.",
            )
        return self._foreign is None

    def _end(self) -> None:
        """TERM to the group, wait, KILL; then the session must be empty and the port free."""
        self._key_file.unlink(missing_ok=True)
        process, self._process = self._process, None
        if process is None:
            return
        patience = END_SECONDS if self.answered else LOADING_END_SECONDS
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            if wait_for(lambda: process.poll() is not None and not session_members(process.pid), seconds):
                break
        self._drain()
        left = session_members(process.pid)
        if left:
            self._context.report(
                warning(
                    "remote_process_orphaned",
                    f"Processes of the engine are still there after SIGKILL: {left}.",
                    path="engine",
                    actual=left,
                    fix="They wait in the kernel, often for a GPU or a network disk; look at them by hand.",
                )
            )
        elif not port_is_free(self.port):
            self._context.report(
                warning("port_in_use", f"Port {self.port} is taken though the engine is gone.", path="engine")
            )


def _unanswered(seconds: float) -> Finding:
    return warning(
        "startup_hang",
        f"The engine says that it is ready and has not answered its first completion for {seconds:.0f} s.",
        path="engine",
        expected=f"<= {ANSWER_SECONDS:.0f} s",
        actual=round(seconds),
        fix="It is left running: stop it if it stays so. A server may start where one was killed, and never answer.",
    )


def free_port() -> int:
    """A port of 127.0.0.1 that is free now. The engine binds it a moment later; losing that race is tried again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def session_members(session: int) -> list[int]:
    """Living processes of a session, from /proc; zombies are not living."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, _, _, owner = file.read().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(owner) == session and state != "Z":
                found.append(int(name))
    return found


def unanswered(problem: Exception, watch: Callable[[], None]) -> FindingError:
    """Why a request failed. Raises what ``watch`` raises: the finding of the engine that died of it, where one did."""
    end = time.monotonic() + DEATH_SECONDS
    while time.monotonic() < end:
        watch()
        time.sleep(POLL)
    return FindingError(
        error(
            "engine_request_failed",
            f"The engine is alive but did not answer: {problem}",
            path="engine",
            fix="Read the engine's lines in this run's log.",
        )
    )


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until ``condition`` holds; False when ``seconds`` have passed."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
    return True
