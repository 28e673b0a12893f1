"""Control on the real embedded host with the real agent; only the stages are small scripts of the tests, and the engine
is a program that tells a version of vLLM."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from eagle3_backend.control import Control, alerts, chain, loads
from eagle3_backend.control.alerts import Notices
from eagle3_backend.control.commands import Command, Open
from eagle3_backend.control.snapshot import Snapshot

ANSWER_SECONDS = 120.0

FAKE_STAGE = textwrap.dedent(
    """
    import http.server, json, os, shutil, sys, threading, time
    from pathlib import Path
    from eagle3_backend.findings import error
    from eagle3_backend.stages.context import StageContext

    class Who(http.server.BaseHTTPRequestHandler):
        run = ""
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.run.encode())
        def log_message(self, *_):
            pass

    context = StageContext(Path(sys.argv[1]))
    context.listen_for_stop()
    name = context.stage.name
    try:
        behaviour = json.loads((context.workspace / "behaviour.json").read_text()).get(name, {})
    except FileNotFoundError:
        behaviour = {}
    template = context.workspace.parent / "templates" / name
    if template.exists():
        shutil.copytree(template, context.output, dirs_exist_ok=True)
    context.output.mkdir(parents=True, exist_ok=True)
    kept = context.output / "steps"
    first = int(kept.read_text()) if kept.exists() else 0
    steps = behaviour.get("steps", 4)
    for step in range(first, steps):
        while (context.workspace / f"hold-{name}").exists() and step == 2:
            if context.stopping:
                sys.exit(75)
            time.sleep(0.02)
        if context.stopping:
            sys.exit(75)
        time.sleep(behaviour.get("pause", 0))
        context.journal.metric(step, **{f"{name}/loss": 1.0 / (step + 1)})
        context.journal.progress(step + 1, steps, "steps", 10.0)
        print(f"{name} step {step}", flush=True)
        kept.write_text(str(step + 1))
    if behaviour.get("fail"):
        context.report(error("loss_nan", "The loss is not a number.", path=name))
        sys.exit(1)
    if name == "serve":
        port = (context.spec.get("after") or {}).get("port") or 0
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Who)
        Who.run = context.run_directory.parent.name
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = {"port": server.server_port, "api_key": "k", "served_model": "target", "engine": "vllm"}
        (context.run_directory / "endpoint.json").write_text(json.dumps(endpoint))
        context.journal.state("ready")
        while not context.stopping:
            time.sleep(0.02)
        server.shutdown()
        server.server_close()
        while (context.workspace / "hold-end").exists():
            time.sleep(0.02)
        sys.exit(75)
    told = len(os.environ.get(behaviour.get("tell", ""), ""))
    context.finish({"made": name, "attempt": context.attempt, "told": told})
    """
)


class Campaign:
    """One campaign directory: profile, workspace, laptop folders, and any number of controls on them."""

    def __init__(self, root: Path, drafters: ModuleType) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.workspace.mkdir()
        self.drafter = root / "templates" / "export" / "flat"
        drafters.checkpoint().write(self.drafter)
        target = root / "templates" / "target"
        target.mkdir()
        (target / "config.json").write_text(json.dumps({**drafters.TARGET, "max_position_embeddings": 4096}))
        self.engine = root / "engine-python"
        self.tell_engine()
        self.profile = root / "demo.toml"
        (root / "prompts.jsonl").write_text('{"id": "1", "turns": ["What is a chain?"]}\n' * 20)
        self.write_profile()
        self.controls: list[Control] = []

    def tell_engine(self, **identity: Any) -> None:
        """What the environment of vLLM says that it is; everything else in it is this Python."""
        told = {
            "engine": "vllm",
            "version": "0.32.0",
            "installed": {"vllm": "0.32.0"},
            "module": "/env/vllm/__init__.py",
            "python": "3.12.1",
            "dumper": 1,
            **identity,
        }
        line = f'case "$*" in *option_surface*) echo {shlex.quote(json.dumps(told))}; exit;; esac'
        self.engine.write_text(f'#!/bin/sh\n{line}\nexec {shlex.quote(sys.executable)} "$@"\n')
        self.engine.chmod(0o755)

    def write_profile(self, stages: str = "", python: str = sys.executable) -> None:
        self.profile.write_text(
            textwrap.dedent(
                f"""
                [host]
                address = "embedded"
                workspace = "{self.workspace}"
                price_per_hour = 36.0
                [environments.train]
                python = "{python}"
                [environments.vllm]
                python = "{self.engine}"
                [target]
                model = "demo:smollm2-135m"
                [stages.prompts]
                files = ["prompts.jsonl"]
                """
            )
            + stages
        )

    def control(self, *, opened: bool = True, notices: Notices | None = None, **options: Any) -> Control:
        control = Control(self.root / "config", self.root / "state", self.root / "cache", notices=notices)
        self.controls.append(control)
        control.start()
        if opened:
            self.ask(control, Open(self.profile, **options))
        return control

    def ask(self, control: Control, command: Command) -> Any:
        return control.submit(command).result(ANSWER_SECONDS)

    def behave(self, **stages: dict[str, Any]) -> None:
        (self.workspace / "behaviour.json").write_text(json.dumps(stages))

    def hold(self, stage: str) -> Path:
        """Keep a stage at its third step (`end`: a service at its end) until the file is gone."""
        path = self.workspace / f"hold-{stage}"
        path.touch()
        return path

    def journal(self, run: str, attempt: int = 1) -> list[str]:
        path = self.workspace / ".eagle3" / "runs" / run / str(attempt) / "journal.jsonl"
        return path.read_text().splitlines()


def until(control: Control, wanted: Callable[[Snapshot], Any], seconds: float = 60.0) -> Snapshot:
    """The first snapshot of which ``wanted`` is true."""
    deadline = time.monotonic() + seconds
    while not wanted(snapshot := control.snapshot()):
        states = {view.name: view.state.value for view in snapshot.stages}
        assert time.monotonic() < deadline, f"{states} {snapshot.events[-5:]}"
        time.sleep(0.02)
    return snapshot


@pytest.fixture
def gateways() -> Callable[..., list[psutil.Process]]:
    """The gateways among the children of a process (of this one, where none is named)."""

    def found(pid: int | None = None) -> list[psutil.Process]:
        gateways = []
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended, or nobody has waited for it yet
                if "eagle3_backend.agent.gateway" in child.cmdline():
                    gateways.append(child)
        return gateways

    return found


@pytest.fixture
def wait_until() -> Callable[..., Snapshot]:
    return until


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafters: ModuleType) -> Iterator[Campaign]:
    script = tmp_path / "fake_stage.py"
    script.write_text(FAKE_STAGE)
    real = chain.spec_of

    def with_fake_stage(*arguments: Any, **options: Any) -> dict[str, Any]:
        return {**real(*arguments, **options), "argv": [sys.executable, str(script), "{run_directory}"]}

    monkeypatch.setattr(chain, "spec_of", with_fake_stage)
    # How full the disk under the tests is, is no matter of theirs.
    monkeypatch.setattr(alerts, "DISK_LEFT", 0.0)
    found = Campaign(tmp_path, drafters)
    yield found
    for path in found.workspace.glob("hold-*"):
        path.unlink()
    for control in found.controls:
        control.close()


STAND_INS = Path(__file__).parents[1] / "stages"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a stand-in; its URL."""
    started: list[subprocess.Popen[bytes]] = []

    def start(engine: str = "vllm", *flags: str, **variables: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if engine == "vllm":
            command = [str(STAND_INS / "stand_in_engine.py"), "serve", "/target"]
        else:
            (tmp_path / "key.yaml").write_text('api-key: "secret"\n')
            command = [str(STAND_INS / "stand_in_sglang.py"), "--config", str(tmp_path / "key.yaml")]
        env = {**os.environ, "VLLM_API_KEY": "secret", **variables}
        command = [sys.executable, *command, "--port", str(port), *flags]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return f"http://127.0.0.1:{port}/v1"
            except OSError:
                assert time.monotonic() < deadline and started[-1].poll() is None
                time.sleep(0.05)

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A way to servers that can be cut: ``cut(after, times)`` lets that many requests pass, then fails so many."""

    def apply(after: int, times: int) -> None:
        left = [after, times]
        real = http.client.HTTPConnection.request

        def request(self: Any, method: str, url: str, *rest: Any, **options: Any) -> None:
            if left[0] > 0:
                left[0] -= 1
            elif left[1] > 0:
                left[1] -= 1
                raise ConnectionResetError("cut")
            return real(self, method, url, *rest, **options)

        monkeypatch.setattr(loads, "RETRY", 0.01)
        monkeypatch.setattr(http.client.HTTPConnection, "request", request)

    return apply
