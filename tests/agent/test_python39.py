"""The agent under the oldest Python that a host may have."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest


def _interpreter() -> str | None:
    candidates = [os.environ.get("EAGLE3_PYTHON39"), shutil.which("python3.9")]
    candidates += sorted(map(str, (Path.home() / ".pyenv" / "versions").glob("3.9*/bin/python")))
    for candidate in filter(None, candidates):
        command = [candidate, "-c", "import sys; print(sys.version_info[:2])"]
        if subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "(3, 9)":
            return candidate
    return None


@pytest.fixture
def python39() -> str:
    found = _interpreter()
    if found is None:
        pytest.skip("there is no Python 3.9 here (EAGLE3_PYTHON39, python3.9 on PATH, pyenv)")
    return found


def test_a_chain_runs_is_followed_and_stopped_under_python_3_9(connect, stages, python39, packages_copy, until):
    # psutil is built for the stable ABI of 3.6, so the one of this interpreter serves.
    (packages_copy / "psutil").symlink_to(Path(psutil.__file__).parent)
    gateway = connect(python=python39, packages=packages_copy)
    assert gateway.request("hello")["python"].startswith("3.9.")
    made = stages.spec("a", "finish()", stage="train")
    waiting = stages.spec("b", "print('up', flush=True); time.sleep(600)", stage="evaluate")
    gateway.start({**made, "then": [waiting]})
    gateway.wait_for(waiting["run"], "running")
    until(lambda: gateway.read_all(waiting["run"], 1, "output.log") == b"up\n")
    gateway.request("follow", sub=1, run=waiting["run"], attempt=1, file="journal.jsonl")
    assert until(lambda: gateway.pushes.get(1))
    held = [lock for lock in gateway.request("locks")["locks"] if lock["run"] == waiting["run"]]
    assert [lock["thing"] for lock in held] == [waiting["output"]] and held[0]["processes"]
    gateway.request("stop", run=waiting["run"], attempt=1)
    gateway.wait_for(waiting["run"], "stopped")
    assert gateway.run(made["run"])["state"] == "done"
    assert gateway.request("telemetry")["memory_total"] > 0
    assert {check["level"] for check in gateway.request("doctor")["checks"]} <= {"ok", "warning"}
