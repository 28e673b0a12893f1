"""What breaks on a host, and what is said of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest


def _record(stages, spec):
    return json.loads((stages.directory(spec) / "supervisor.json").read_text())


def _age_heartbeat(stages, spec):
    """Three beats missed, without the wait."""
    past = time.monotonic() - 60
    (stages.directory(spec) / "heartbeat").write_text(f"{past:020.3f} {time.time() - 60:020.3f}\n")


def test_a_killed_supervisor_leaves_an_orphan_that_can_be_stopped_and_then_resumed(
    gateway, stages, until, refused, bystander
):
    code = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        number = 0
        while True:
            number += 1
            print(number, flush=True)
            time.sleep(0.02)
    """
    quick = {"save_seconds": 0.5, "terminate_seconds": 0.5}
    spec = stages.spec("a", code, stage="train", parameters=quick)
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    os.kill(_record(stages, spec)["supervisor"]["pid"], signal.SIGKILL)
    entry = gateway.wait_for(spec["run"], "unknown")
    (finding,) = entry["findings"]
    assert (finding["code"], finding["severity"]) == ("remote_process_orphaned", "error")
    assert len(finding["actual"]) == 2
    size = len(gateway.read_all(spec["run"], 1, "output.log"))
    until(lambda: len(gateway.read_all(spec["run"], 1, "output.log")) > size)
    with pytest.raises(refused) as problem:
        gateway.start(spec)
    assert problem.value.code == "remote_process_orphaned"
    with pytest.raises(refused) as problem:
        gateway.start({**spec, "run": "another-run"})
    assert problem.value.code == "already_running"

    assert gateway.request("stop", run=spec["run"], attempt=1) == {"state": "stopping"}
    until(lambda: not stages.alive(spec))
    assert bystander.poll() is None
    assert gateway.run(spec["run"])["state"] == "unknown"
    _age_heartbeat(stages, spec)
    entry = gateway.run(spec["run"])
    assert entry["state"] == "crashed" and "last heartbeat" in entry["remark"]
    assert gateway.start(spec)["attempt"] == 2


def test_workers_of_a_killed_supervisor_and_stage_are_still_found(gateway, stages, until):
    code = "subprocess.Popen(['sleep', '600'], start_new_session=True)\nprint(1, flush=True)\ntime.sleep(600)"
    spec = stages.spec("a", code, parameters={"save_seconds": 0.5, "terminate_seconds": 0.5})
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    record = _record(stages, spec)
    for role in ("supervisor", "stage"):
        os.kill(record[role]["pid"], signal.SIGKILL)
    entry = gateway.wait_for(spec["run"], "unknown")
    assert [listed["command"] for listed in entry["findings"][0]["actual"]] == ["sleep 600"]
    gateway.request("stop", run=spec["run"], attempt=1)
    until(lambda: not stages.alive(spec))


def test_a_stage_killed_from_outside_is_likely_out_of_memory(gateway, stages):
    spec = stages.spec("a", "os.kill(os.getpid(), signal.SIGKILL)", stage="train")
    gateway.start(spec)
    entry = gateway.wait_for(spec["run"], "failed")
    assert (entry["exit"]["code"], entry["exit"]["signal"]) == (None, "SIGKILL")
    assert entry["remark"] == "SIGKILL, likely out of memory"
    lines = [json.loads(line) for line in gateway.read_all(spec["run"], 1, "journal.jsonl").splitlines()]
    assert [line["code"] for line in lines if line["kind"] == "finding"] == ["killed_by_kernel"]


def test_a_clean_exit_without_a_whole_artifact_is_no_success(gateway, stages):
    spec = stages.spec("a", "output.mkdir(parents=True)", stage="train")
    gateway.start(spec)
    assert gateway.wait_for(spec["run"], "failed")["exit"]["findings"][0]["code"] == "artifact_incomplete"


def test_the_stage_s_own_findings_stand_in_the_outcome(gateway, stages):
    code = "say('finding', code='prompts_empty', severity='error', message='No prompt is left.')\nsys.exit(1)"
    spec = stages.spec("a", code, stage="train")
    gateway.start(spec)
    entry = gateway.wait_for(spec["run"], "failed")
    assert [finding["code"] for finding in entry["exit"]["findings"]] == ["prompts_empty"]
    assert entry["remark"] == "prompts_empty: No prompt is left."


def test_a_silent_supervisor_is_remarked_and_still_running(gateway, stages, until):
    spec = stages.spec("a", "time.sleep(600)")
    gateway.start(spec)
    supervisor = _record(stages, spec)["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    _age_heartbeat(stages, spec)
    entry = gateway.run(spec["run"])
    os.kill(supervisor, signal.SIGCONT)
    assert entry["state"] == "running" and entry["remark"].startswith("no heartbeat for 6")


@pytest.mark.parametrize("file", ["exit.json", "supervisor.json", "spec.json", "claim", "heartbeat"])
def test_a_torn_file_is_unknown_or_less_but_never_a_crash(gateway, stages, file):
    spec = stages.spec("a", "sys.exit(3)")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "failed")
    path = stages.directory(spec) / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if file == "supervisor.json":
        (stages.directory(spec) / "exit.json").unlink()
    fresh_look = gateway.request("stop", run=spec["run"], attempt=1)["state"]
    assert fresh_look == ("unknown" if file in ("exit.json", "supervisor.json") else "failed")
    assert gateway.start(spec)["attempt"] == 2


def test_a_running_attempt_with_a_torn_outcome_still_runs(gateway, stages):
    spec = stages.spec("a", "time.sleep(600)")
    gateway.start(spec)
    (stages.directory(spec) / "exit.json").write_text('{"state": "do')
    assert gateway.run(spec["run"])["state"] == "running"


@pytest.fixture
def small_disk(workspace):
    workspace.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(workspace)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    yield workspace
    subprocess.run(["umount", "--lazy", str(workspace)], check=True)


FILL = """
with open(output.parent / "fill", "wb", buffering=0) as file:
    try:
        while True: file.write(b"x" * 4096)
    except OSError: pass
"""


def test_a_full_disk_does_not_swallow_the_outcome(small_disk, gateway, stages, refused):
    spec = stages.spec("a", FILL + "sys.exit(3)")
    (small_disk / "campaign" / "serve").mkdir(parents=True)
    gateway.start(spec)
    assert gateway.wait_for(spec["run"], "failed")["exit"]["code"] == 3
    with pytest.raises(refused) as problem:
        gateway.start(spec)
    assert problem.value.code == "disk_space_insufficient"
    leftovers = [
        path.name for path in Path(stages.directory(spec)).iterdir() if path.name.endswith((".tmp", ".reserved"))
    ]
    assert leftovers == []
    (small_disk / "campaign" / "serve" / "fill").unlink()
    assert gateway.request("ping")["wall"] > 0
    assert gateway.start(stages.spec("b", ""))["started"]
