"""The stop ladder on real process trees: nothing of ours is left, and nobody else is touched."""

from __future__ import annotations

import json

QUICK = {"save_seconds": 0.6, "terminate_seconds": 0.6}
ESCAPE = """
    escaped = '''
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    if os.fork(): os._exit(0)
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
    '''
    import textwrap
    subprocess.Popen([sys.executable, "-I", "-S", "-c", textwrap.dedent(escaped), str(here / "escaped")])
    while not (here / "escaped").exists(): time.sleep(0.02)
"""


def _escaping(then: str) -> str:
    import textwrap

    return textwrap.dedent(ESCAPE) + textwrap.dedent(then)


def test_a_stage_that_saves_and_leaves_is_stopped(gateway, stages, until):
    spec = stages.spec(
        "a",
        """
        asked = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        print("ready", flush=True)
        while not asked: time.sleep(0.02)
        say("checkpoint", step=7, path="x")
        sys.exit(75)
        """,
        stage="train",
    )
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    assert gateway.request("stop", run=spec["run"], attempt=1, by="operator")["state"] == "stopping"
    entry = gateway.wait_for(spec["run"], "stopped")
    assert (entry["exit"]["code"], entry["exit"]["stopped_by"]) == (75, "operator")
    assert entry["exit"]["reason"] == "saved and left"


def test_a_stage_that_finishes_while_it_is_stopped_is_done(gateway, stages, until):
    code = "signal.signal(signal.SIGTERM, lambda *_: (finish(), os._exit(0)))\nprint(1, flush=True)\ntime.sleep(600)"
    spec = stages.spec("a", code, stage="train")
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    gateway.request("stop", run=spec["run"], attempt=1)
    assert gateway.wait_for(spec["run"], "done", "stopped")["state"] == "done"


def test_the_ladder_ends_a_tree_that_ignores_term_and_leaves_its_session(gateway, stages, until, bystander):
    code = _escaping("signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)")
    spec = stages.spec("a", code, stage="train", parameters=QUICK)
    gateway.start(spec)
    until(lambda: (stages.directory(spec) / "escaped").exists())
    assert len(stages.alive(spec)) == 2
    gateway.request("stop", run=spec["run"], attempt=1)
    entry = gateway.wait_for(spec["run"], "stopped")
    assert entry["exit"]["signal"] == "SIGKILL"
    assert entry["exit"]["reason"].startswith("did not leave in time")
    assert [finding["code"] for finding in entry["exit"]["findings"]] == []
    assert stages.alive(spec) == []
    assert bystander.poll() is None
    lines = [json.loads(line) for line in gateway.read_all(spec["run"], 1, "journal.jsonl").splitlines()]
    assert [line["rung"] for line in lines if line.get("state") == "stopping"] == [1, 2, 3]


def test_a_kill_waits_for_nothing_and_leaves_nothing(gateway, stages, until, bystander):
    code = _escaping("signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)")
    spec = stages.spec("a", code, stage="train", parameters={"save_seconds": 600, "terminate_seconds": 600})
    gateway.start(spec)
    until(lambda: (stages.directory(spec) / "escaped").exists())
    gateway.request("stop", run=spec["run"], attempt=1, by="ana", kill=True)
    entry = gateway.wait_for(spec["run"], "stopped")
    assert (entry["exit"]["reason"], entry["exit"]["stopped_by"]) == ("killed as asked (SIGKILL)", "ana")
    assert stages.alive(spec) == [] and bystander.poll() is None


def test_a_stop_that_takes_too_long_can_be_made_a_kill(gateway, stages, until):
    code = "signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\nwhile True: time.sleep(0.1)"
    spec = stages.spec("a", code, stage="train", parameters={"save_seconds": 600, "terminate_seconds": 600})
    gateway.start(spec)
    until(lambda: stages.alive(spec))
    gateway.request("stop", run=spec["run"], attempt=1)
    until(lambda: b"asked" in gateway.read_all(spec["run"], 1, "output.log"))
    gateway.request("stop", run=spec["run"], attempt=1, kill=True)
    assert gateway.wait_for(spec["run"], "stopped")["exit"]["reason"] == "killed as asked (SIGKILL)"


def test_a_kill_ends_a_worker_that_outlives_its_stage(gateway, stages, until):
    code = _escaping("sys.exit(75)")
    spec = stages.spec("a", code, stage="train", parameters={"save_seconds": 600, "terminate_seconds": 600})
    gateway.start(spec)
    until(lambda: (stages.directory(spec) / "escaped").exists())
    gateway.request("stop", run=spec["run"], attempt=1, kill=True)
    gateway.wait_for(spec["run"], "stopped")
    assert stages.alive(spec) == []


def test_the_first_rung_reaches_the_first_process_alone(gateway, stages, until):
    code = """
        worker = '''
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1] + "/worker-was-asked", "w").close(), sys.exit()))
        open(sys.argv[1] + "/up", "w").close()
        time.sleep(600)
        '''
        import textwrap
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", textwrap.dedent(worker), str(here)])
        while not (here / "up").exists(): time.sleep(0.02)
        asked = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        (here / "ready").touch()
        while not asked: time.sleep(0.02)
        time.sleep(0.5)
        print((here / "worker-was-asked").exists(), flush=True)
        child.kill()
        sys.exit(75)
    """
    spec = stages.spec("a", code, stage="train")
    gateway.start(spec)
    until(lambda: (stages.directory(spec) / "ready").exists())
    gateway.request("stop", run=spec["run"], attempt=1)
    gateway.wait_for(spec["run"], "stopped")
    assert gateway.read_all(spec["run"], 1, "output.log") == b"False\n"


def test_serve_is_killed_without_a_second_request(gateway, stages, until):
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(600)"
    spec = stages.spec("a", code, parameters={"save_seconds": 0.5, "terminate_seconds": 600.0})
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    gateway.request("stop", run=spec["run"], attempt=1)
    assert gateway.wait_for(spec["run"], "stopped")["exit"]["signal"] == "SIGKILL"


def test_what_a_finished_stage_left_behind_is_ended(gateway, stages, bystander):
    spec = stages.spec("a", _escaping("finish()"), stage="train", parameters=QUICK)
    gateway.start(spec)
    assert gateway.wait_for(spec["run"], "done")["exit"]["code"] == 0
    assert stages.alive(spec) == []
    assert bystander.poll() is None


def test_term_to_the_supervisor_is_a_stop_request(gateway, stages, until):
    import os
    import signal

    spec = stages.spec("a", "print(1, flush=True)\ntime.sleep(600)", stage="train")
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    record = json.loads((stages.directory(spec) / "supervisor.json").read_text())
    os.kill(record["supervisor"]["pid"], signal.SIGTERM)
    assert gateway.wait_for(spec["run"], "stopped")["exit"]["stopped_by"] == "SIGTERM to the supervisor"


def test_stopping_what_ended_changes_nothing(gateway, stages):
    spec = stages.spec("a", "sys.exit(3)")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "failed")
    assert gateway.request("stop", run=spec["run"], attempt=1) == {"state": "failed"}
    assert not (stages.directory(spec) / "cancel").exists()
