"""Starting an attempt: exactly once, with what it needs, and with a finding where that cannot be."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

WAIT = """
print("started", os.getpid(), flush=True)
with open(output.parent / (fingerprint + ".starts"), "a") as file:
    file.write("x")
time.sleep(600)
"""
MAKE = "finish()"


def _starts(spec, stages):
    path = stages.workspace / "campaign" / spec["stage"] / f"{spec['fingerprint']}.starts"
    return path.read_text() if path.exists() else ""


def _waiting(stages, name, **fields):
    spec = stages.spec(name, WAIT, **fields)
    (stages.workspace / "campaign" / spec["stage"]).mkdir(parents=True, exist_ok=True)
    return spec


def test_a_stage_runs_to_its_end_and_leaves_the_outcome(gateway, stages):
    spec = stages.spec("a", "print('out', flush=True); print('err', file=sys.stderr); finish()", stage="train")
    answer = gateway.start(spec)
    assert answer == {"run": spec["run"], "attempt": 1, "started": True, "state": answer["state"]}
    entry = gateway.wait_for(spec["run"], "done")
    assert (entry["exit"]["code"], entry["exit"]["signal"], entry["exit"]["findings"]) == (0, None, [])
    assert entry["exit"]["max_rss"] > 1 << 20
    assert entry["exit"]["ended"] >= entry["exit"]["started"]
    assert gateway.read_all(spec["run"], 1, "output.log") == b"out\nerr\n"


def test_a_repeated_request_returns_the_first_answer(gateway, stages):
    spec = _waiting(stages, "a")
    first = gateway.start(spec, request="r1")
    again = gateway.start(spec, request="r1")
    assert again == {**first, "started": False}


def test_a_repeated_request_does_not_start_what_ended_meanwhile(gateway, stages):
    spec = stages.spec("a", "sys.exit(3)")
    gateway.start(spec, request="r1")
    gateway.wait_for(spec["run"], "failed")
    again = gateway.start(spec, request="r1")
    assert (again["attempt"], again["started"], again["state"]) == (1, False, "failed")


def test_twenty_starts_at_once_make_one_process(connect, stages, until):
    spec = _waiting(stages, "a")
    clients = [connect() for _ in range(4)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda number: clients[number % 4].start(spec), range(20)))
    assert sorted(answer["started"] for answer in answers) == [False] * 19 + [True]
    assert {answer["attempt"] for answer in answers} == {1}
    until(lambda: _starts(spec, stages))
    assert _starts(spec, stages) == "x"
    assert len(list(stages.directory(spec).parent.iterdir())) == 1


def test_another_run_on_the_same_artifact_is_a_conflict(gateway, stages, refused):
    spec = _waiting(stages, "a")
    gateway.start(spec)
    with pytest.raises(refused) as problem:
        gateway.start({**spec, "run": "another-run"})
    assert problem.value.code == "already_running"
    assert problem.value.finding["actual"]["run"] == spec["run"]


def test_the_next_attempt_follows_a_failed_one(gateway, stages):
    spec = stages.spec("a", "sys.exit(3)")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "failed")
    assert gateway.start(spec)["attempt"] == 2


def test_a_fresh_artifact_is_not_made_twice(gateway, stages):
    spec = stages.spec("a", MAKE, stage="train")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "done")
    assert gateway.start(spec) == {"run": spec["run"], "attempt": 1, "started": False, "state": "done"}


def test_restart_sets_the_old_artifact_aside(gateway, stages):
    spec = stages.spec("a", MAKE, stage="train")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "done")
    assert gateway.start(spec, restart=True)["attempt"] == 2
    gateway.wait_for(spec["run"], "done")
    kept = [path.name for path in (stages.workspace / "campaign" / "train").iterdir()]
    assert sum(name.startswith("a.old-") for name in kept) == 1 and "a" in kept


def test_secrets_reach_the_child_and_no_file(gateway, stages):
    code = "(here / 'seen').write_text(str('tok-3141' == os.environ['HUB_TOKEN']) + os.environ['PLAIN'])"
    spec = stages.spec("a", code, env={"PLAIN": "v"})
    gateway.start(spec, secrets={"HUB_TOKEN": "tok-3141"})
    gateway.wait_for(spec["run"], "done")
    directory = stages.directory(spec)
    assert (directory / "seen").read_text() == "Truev"
    assert all(b"tok-3141" not in path.read_bytes() for path in directory.iterdir())
    assert all(path.stat().st_mode & 0o077 == 0 for path in [directory, *directory.iterdir()] if path.name != "seen")


def test_a_missing_interpreter_is_a_finding_and_a_failed_attempt(gateway, stages, refused):
    spec = stages.spec("a", "", argv=["/nowhere/python", "x"])
    with pytest.raises(refused) as problem:
        gateway.start(spec)
    assert (problem.value.code, problem.value.finding["path"]) == ("environment_missing", "/nowhere/python")
    entry = gateway.run(spec["run"])
    assert entry["state"] == "failed"
    assert entry["exit"]["findings"][0]["code"] == "environment_missing"


@pytest.mark.parametrize(
    ("field", "value"),
    [("argv", []), ("output", "/elsewhere/x"), ("output", "{workspace}/../x"), ("run", None), ("then", [3])],
)
def test_a_wrong_spec_is_refused_with_its_field(gateway, stages, refused, workspace, field, value):
    if isinstance(value, str):
        value = value.format(workspace=workspace)
    with pytest.raises(refused) as problem:
        gateway.start({**stages.spec("a", ""), field: value})
    assert (problem.value.code, problem.value.finding["path"]) == ("spec_invalid", field)


def test_a_run_name_cannot_leave_the_workspace(gateway, stages, refused):
    with pytest.raises(refused) as problem:
        gateway.start({**stages.spec("a", ""), "run": "../../x"})
    assert problem.value.code == "request_invalid"


def test_two_runs_cannot_hold_one_gpu(gateway, stages, refused):
    first = _waiting(stages, "a", gpus=["GPU-test-1", "GPU-test-0"])
    second = _waiting(stages, "b", gpus=["GPU-test-1"])
    gateway.start(first)
    with pytest.raises(refused) as problem:
        gateway.start(second)
    assert (problem.value.code, problem.value.finding["path"]) == ("gpu_in_use", "GPU-test-1")
    gateway.request("stop", run=first["run"], attempt=1)
    gateway.wait_for(first["run"], "stopped")
    assert gateway.start(second)["started"]


def test_without_psutil_hello_answers_and_start_says_what_is_missing(connect, stages, refused, tmp_path, packages_copy):
    (packages_copy / "psutil.py").write_text("raise ImportError('not compiled for this Python')")
    client = connect(packages=packages_copy)
    assert client.request("hello")["protocol"] == 1
    for ask in (lambda: client.start(stages.spec("a", "")), lambda: client.request("telemetry")):
        with pytest.raises(refused) as problem:
            ask()
        assert problem.value.code == "psutil_missing"
        assert "pip install psutil" in problem.value.finding["fix"]


@pytest.mark.parametrize(("works", "runs"), [("exit 1", 1), ('shift 5; exec "$@"', 2)])
def test_a_run_gets_a_systemd_scope_where_that_works(connect, stages, tmp_path, monkeypatch, works, runs):
    program = tmp_path / "bin" / "systemd-run"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/called\n{works}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    gateway, spec = connect(), stages.spec("a", "")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "done")
    called = (tmp_path / "called").read_text().splitlines()
    assert len(called) == runs and all(line.startswith("--user --scope --quiet") for line in called)


def test_a_start_without_a_supervisor_fails_after_half_a_minute(gateway, stages):
    spec = stages.spec("a", "")
    directory = stages.directory(spec)
    directory.mkdir(parents=True)
    hello = gateway.request("hello")
    host = {name: hello[name] for name in ("host_name", "boot_id", "pid_namespace")}
    claim = {"request": "r", "by": "x", "host": host, "wall": hello["wall"], "monotonic": hello["monotonic"]}
    (directory / "claim").write_text(json.dumps(claim))
    assert gateway.run(spec["run"])["state"] == "starting"
    (directory / "claim").write_text(json.dumps({**claim, "monotonic": hello["monotonic"] - 31}))
    assert gateway.run(spec["run"])["state"] == "crashed"
    assert gateway.start(spec)["attempt"] == 2
