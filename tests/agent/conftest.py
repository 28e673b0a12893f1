"""Real gateways, supervisors and fake stages: scripts in a temporary workspace."""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eagle3_backend
from eagle3_backend.agent import processes
from eagle3_backend.agent.ladder import MARKER

PACKAGES = Path(eagle3_backend.__file__).parents[1]


class Refused(Exception):
    """A gateway's answer that is a finding."""

    def __init__(self, finding: dict[str, Any]) -> None:
        super().__init__(f"{finding['code']}: {finding['message']}")
        self.finding = finding
        self.code = finding["code"]


class GatewayClient:
    """The plainest client: one reading thread, answers by id, pushes by subscription."""

    def __init__(self, workspace: Path, python: str, packages: Path, ping_interval: float) -> None:
        self.process = subprocess.Popen(
            [
                *(python, "-m", "eagle3_backend.agent.gateway"),
                *("--workspace", str(workspace), "--ping-interval", str(ping_interval)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(packages), "PYTHONSAFEPATH": "1"},
            cwd="/",
        )
        self.reading = threading.Event()
        self.reading.set()
        self.longest = 0
        self._next = 0
        self._lock = threading.Lock()
        self._answers: dict[int | None, queue.Queue[dict[str, Any]]] = {None: queue.Queue()}
        self.pushes: dict[int, queue.Queue[dict[str, Any]]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.longest = max(self.longest, len(line))
            frame = json.loads(line)
            if "sub" in frame:
                self.pushes.setdefault(frame["sub"], queue.Queue()).put(frame)
            else:
                self._answers.setdefault(frame["id"], queue.Queue()).put(frame)
            self.reading.wait()

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def answer_without_id(self) -> dict[str, Any]:
        return self._answers[None].get(timeout=20)

    def request(self, op: str, timeout: float = 60, **fields: Any) -> dict[str, Any]:
        with self._lock:
            self._next += 1
            identifier = self._next
            answers = self._answers.setdefault(identifier, queue.Queue())
        self.send(json.dumps({"id": identifier, "op": op, **fields}).encode() + b"\n")
        frame = answers.get(timeout=timeout)
        if not frame["ok"]:
            raise Refused(frame["finding"])
        return frame["result"]

    def start(self, spec: dict[str, Any], request: str = "", **fields: Any) -> dict[str, Any]:
        return self.request("start", spec=spec, request=request or uuid.uuid4().hex, **fields)

    def run(self, run: str, attempt: int | None = None) -> dict[str, Any]:
        """The newest (or the given) attempt as the gateway lists it."""
        found = [entry for entry in self.request("runs")["runs"] if entry["run"] == run]
        return found[-1] if attempt is None else next(entry for entry in found if entry["attempt"] == attempt)

    def wait_for(self, run: str, *states: str, timeout: float = 40) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            entries = [entry for entry in self.request("runs")["runs"] if entry["run"] == run]
            if entries and entries[-1]["state"] in states:
                return entries[-1]
            assert time.monotonic() < deadline, f"{run} is not {states}: {entries[-1:]}"
            time.sleep(0.1)

    def read_all(self, run: str, attempt: int, file: str) -> bytes:
        data = b""
        while True:
            piece = self.request("read", run=run, attempt=attempt, file=file, offset=len(data), length=1 << 19)
            data += base64.b64decode(piece["data"])
            if len(data) >= piece["size"]:
                return data

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> int:
        assert self.process.stdin is not None
        self.reading.set()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        return self.process.wait(timeout=20)


class Stages:
    """Makes specs of fake stages; what they run is a script in the workspace."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace

    def spec(self, name: str, code: str, *, stage: str = "serve", **fields: Any) -> dict[str, Any]:
        """``code`` sees ``here`` (run directory), ``output``, ``fingerprint``, ``say(kind, **values)``, ``finish``."""
        script = self.workspace / "scripts" / f"{name}.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        output = self.workspace / "campaign" / stage / name
        head = f"""
            import json, os, pathlib, signal, subprocess, sys, time
            here, output, fingerprint = pathlib.Path(sys.argv[1]), pathlib.Path({str(output)!r}), {name!r}
            def say(kind, **values):
                with open(here / "journal.jsonl", "ab", buffering=0) as file:
                    file.write(json.dumps({{"w": "stage", "kind": kind, **values}}).encode() + b"\\n")
            def finish():
                output.mkdir(parents=True, exist_ok=True)
                manifest = {{"kind": "k", "fingerprint": fingerprint, "files": [], "summary": {{}}}}
                (output / "manifest.json").write_text(json.dumps(manifest))
        """
        script.write_text(textwrap.dedent(head) + textwrap.dedent(code))
        return {
            "protocol": 1,
            "run": f"campaign-{stage}-{name}",
            "stage": stage,
            "stage_version": 1,
            "fingerprint": name,
            "parameters": {"save_seconds": 20.0, "terminate_seconds": 5.0},
            "inputs": {},
            "output": str(output),
            "argv": [sys.executable, "-I", "-S", str(script), "{run_directory}"],
            "engine": None,
            "environment": "train",
            "payload": "0" * 64,
            **fields,
        }

    def directory(self, spec: dict[str, Any], attempt: int = 1) -> Path:
        return self.workspace / ".eagle3" / "runs" / spec["run"] / str(attempt)

    def alive(self, spec: dict[str, Any], attempt: int = 1) -> list[processes.Process]:
        """Living processes of an attempt, found by what they inherited and not by who their parent is."""
        return processes.marked(MARKER, str(self.directory(spec, attempt)), processes.table().values())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def stages(workspace: Path) -> Iterator[Stages]:
    made = Stages(workspace)
    yield made
    for directory in (workspace / ".eagle3" / "runs").glob("*/*"):
        record = directory / "supervisor.json"
        try:
            supervisor = json.loads(record.read_text())["supervisor"]
        except (OSError, ValueError, KeyError, TypeError):
            supervisor = None
        living = processes.read(supervisor["pid"]) if supervisor else None
        if living is not None and living.ticks == supervisor["ticks"]:
            processes.send(living, signal.SIGKILL)
        for process in processes.marked(MARKER, str(directory), processes.table().values()):
            processes.send(process, signal.SIGKILL)


@pytest.fixture
def connect(workspace: Path) -> Iterator[Callable[..., GatewayClient]]:
    """Opens a gateway on the test's workspace."""
    opened: list[GatewayClient] = []

    def make(python: str = sys.executable, packages: Path = PACKAGES, ping_interval: float = 60.0) -> GatewayClient:
        client = GatewayClient(workspace, python, packages, ping_interval)
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.kill()


@pytest.fixture(scope="session")
def idle_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayClient]:
    """One gateway for all questions that change nothing."""
    client = GatewayClient(tmp_path_factory.mktemp("idle"), sys.executable, PACKAGES, ping_interval=600.0)
    yield client
    client.kill()


@pytest.fixture
def gateway(connect: Callable[..., GatewayClient]) -> GatewayClient:
    return connect()


@pytest.fixture
def refused() -> type[Refused]:
    return Refused


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def until() -> Callable[..., Any]:
    """Waits for a value that is true."""

    def wait(probe: Callable[[], Any], timeout: float = 40) -> Any:
        deadline = time.monotonic() + timeout
        while True:
            value = probe()
            if value:
                return value
            assert time.monotonic() < deadline, "this did not come true in time"
            time.sleep(0.05)

    return wait


@pytest.fixture
def packages_copy(tmp_path: Path) -> Path:
    """A payload of its own, as it is unpacked on a host."""
    target = tmp_path / "payload"
    shutil.copytree(
        PACKAGES / "eagle3_backend", target / "eagle3_backend", ignore=shutil.ignore_patterns("__pycache__")
    )
    return target
