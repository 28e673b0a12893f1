"""One service in the place of another, as the host does it: nobody on a laptop is needed between stop and start."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid

import pytest

SERVING = """
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    (here / "serving").touch()
    while not asked: time.sleep(0.02)
    while (here.parents[3] / "busy").exists(): time.sleep(0.02)
    sys.exit(75)
"""


READY = """
    say("state", state="ready")
"""

ENDPOINT = (
    """
    if (here.parents[3] / "broken").exists(): sys.exit(1)
    key = os.environ.get("EAGLE3_ENDPOINT_KEY", "first")
    (here / "endpoint.json").write_text(json.dumps({"port": 41873, "api_key": key}))
"""
    + READY
    + SERVING
)

FAILING = """
    say("finding", code="engine_failed", severity="error", message="No room for the cache.")
    sys.exit(1)
"""


@pytest.fixture
def old(gateway, stages, until):
    """A service at work."""
    spec = stages.spec("old", SERVING)
    gateway.start(spec)
    until(lambda: serves(stages, spec))
    return spec


def serves(stages, spec):
    return (stages.directory(spec) / "serving").exists()


def serves_again(stages, spec):
    return (stages.directory(spec, 2) / "serving").exists()


def instead(stages, old, name="new", code=SERVING, **fields):
    """A service for the place of the old one."""
    return stages.spec(name, code, after={"run": old["run"], "attempt": 1}, **fields)


def codes(entry):
    return [finding["code"] for finding in entry["exit"]["findings"]]


def test_the_successor_serves_although_the_gateway_is_killed_as_soon_as_the_stop_was_asked(
    connect, gateway, stages, old, until
):
    new, busy = instead(stages, old), stages.workspace / "busy"
    busy.touch()
    gateway.start(new)
    assert (stages.directory(old) / "cancel").exists()
    gateway.kill()
    later = connect()
    entry = later.run(new["run"])
    assert (entry["state"], entry["remark"]) == ("starting", f"waits for the end of {old['run']}")
    assert not serves(stages, new)
    busy.unlink()
    until(lambda: serves(stages, new))
    assert later.wait_for(new["run"], "running")["remark"] == ""
    ended = later.wait_for(old["run"], "stopped")
    assert ended["exit"]["stopped_by"].endswith(f", for {new['run']}")


def test_of_two_swaps_at_once_one_is_carried_out_and_the_other_is_told_so(connect, stages, old, until, refused):
    answers = {}

    def ask(name):
        try:
            answers[name] = connect().start(instead(stages, old, name))
        except refused as problem:
            answers[name] = problem

    (stages.workspace / "busy").touch()
    threads = [threading.Thread(target=ask, args=(name,)) for name in ("b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (stages.workspace / "busy").unlink()
    lost = [name for name, answer in answers.items() if isinstance(answer, refused)]
    assert len(lost) == 1 and answers[lost[0]].code == "swap_under_way"
    assert answers[lost[0]].finding["message"].startswith("The place of ")
    assert answers[lost[0]].finding["actual"]["run"] != f"campaign-serve-{lost[0]}"
    (won,) = {"b", "c"} - set(lost)
    until(lambda: (stages.workspace / ".eagle3/runs" / f"campaign-serve-{won}" / "1" / "serving").exists())


def test_a_repeated_swap_finds_the_first(gateway, stages, old, until):
    (stages.workspace / "busy").touch()
    first, second = gateway.start(instead(stages, old)), gateway.start(instead(stages, old))
    (stages.workspace / "busy").unlink()
    assert (first["started"], second["started"], second["attempt"]) == (True, False, first["attempt"])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"argv": ["/nowhere/python"]}, "environment_missing"),
        ({"after": {"run": "campaign-serve-none", "attempt": 1}}, "run_unknown"),
        ({"after": "old"}, "spec_invalid"),
    ],
    ids=["no program", "nobody there", "no spec"],
)
def test_a_successor_that_cannot_be_leaves_the_old_one_at_work(gateway, stages, old, refused, fields, code):
    with pytest.raises(refused) as problem:
        gateway.start({**instead(stages, old), **fields})
    assert problem.value.code == code
    assert gateway.run(old["run"])["state"] == "running"
    assert not (stages.directory(old) / "cancel").exists()


def test_a_successor_that_never_serves_gives_the_place_back_and_it_is_told(gateway, stages, until):
    old = stages.spec("old", ENDPOINT)
    gateway.start(old)
    until(lambda: serves(stages, old))
    new = instead(stages, old, code=FAILING)
    gateway.start(new)
    failed = gateway.wait_for(new["run"], "failed")
    assert codes(failed) == ["swap_undone", "engine_failed"]
    assert failed["remark"].startswith(f"swap_undone: {new['run']} failed before it served: ")
    assert failed["remark"].endswith(f"as attempt 2 of {old['run']}. engine_failed: No room for the cache.")
    until(lambda: serves_again(stages, old))
    endpoint, spec = (
        json.loads((stages.directory(old, 2) / name).read_text()) for name in ("endpoint.json", "spec.json")
    )
    assert endpoint["api_key"] == "first"
    reason = "engine_failed: No room for the cache."
    assert spec["after"] == {"run": new["run"], "attempt": 1, "port": 41873, "failed": reason}
    assert "first" not in json.dumps(spec)
    gateway.wait_for(old["run"], "running")  # the journal hears of it a little later


def test_an_endpoint_that_is_brought_back_and_fails_brings_nobody_back(gateway, stages, until):
    old = stages.spec("old", ENDPOINT)
    gateway.start(old)
    until(lambda: serves(stages, old))
    (stages.workspace / "broken").touch()
    new = instead(stages, old, code=ENDPOINT)
    gateway.start(new)
    until(lambda: gateway.run(old["run"])["attempt"] == 2)
    again = gateway.wait_for(old["run"], "failed")
    assert codes(again) == [] and again["remark"] == "exit 1"
    assert gateway.run(new["run"])["attempt"] == 1


def test_a_successor_that_has_served_and_fails_later_keeps_the_place(gateway, stages, until):
    old = stages.spec("old", ENDPOINT)
    gateway.start(old)
    until(lambda: serves(stages, old))
    new = instead(stages, old, code=READY + FAILING)
    gateway.start(new)
    assert codes(gateway.wait_for(new["run"], "failed")) == ["engine_failed"]
    assert gateway.run(old["run"])["attempt"] == 1


def test_what_had_failed_before_it_was_swapped_is_not_brought_back(gateway, stages):
    old = stages.spec("old", '(here / "endpoint.json").write_text("{}")\nsys.exit(3)')
    gateway.start(old)
    gateway.wait_for(old["run"], "failed")
    new = instead(stages, old, code=FAILING)
    gateway.start(new)
    assert codes(gateway.wait_for(new["run"], "failed")) == ["engine_failed"]


def test_a_stop_that_comes_while_the_old_one_is_being_started_again_ends_that_one(gateway, stages, old, until):
    again = stages.directory(old, 2)
    (stages.directory(old) / "endpoint.json").write_text('{"port": 41873}')
    new = instead(stages, old, code=FAILING)
    gateway.start(new)
    until(again.exists)
    (stages.directory(new) / "cancel").write_text('{"by": "somebody"}')
    gateway.wait_for(new["run"], "failed")
    assert gateway.wait_for(old["run"], "stopped")["attempt"] == 2


def test_nothing_serves_is_told_when_the_host_cannot_start_the_old_one_again(gateway, stages, old):
    (stages.directory(old) / "endpoint.json").write_text('{"port": 41873}')
    stages.directory(old, 2).write_text("in the way")
    new = instead(stages, old, code=FAILING)
    gateway.start(new)
    assert codes(gateway.wait_for(new["run"], "failed")) == ["host_io_error", "swap_not_undone", "engine_failed"]


def test_the_old_one_serves_on_when_what_the_successor_stands_on_fails(gateway, stages, old):
    before = stages.spec("export", "sys.exit(1)", stage="export")
    gateway.start({**before, "then": [instead(stages, old)]})
    gateway.wait_for(before["run"], "failed")
    assert gateway.run(old["run"])["state"] == "running"


def test_the_successor_of_a_chain_asks_only_when_its_turn_has_come(gateway, stages, old, until):
    before, new = stages.spec("export", "finish()", stage="export"), instead(stages, old)
    gateway.start({**before, "then": [new]})
    until(lambda: serves(stages, new))
    gateway.wait_for(old["run"], "stopped")


def test_a_successor_that_is_stopped_never_begins_and_its_own_successor_does(gateway, stages, old, until):
    (stages.workspace / "busy").touch()
    second = instead(stages, old)
    gateway.start(second)
    third = instead(stages, second, "third")
    gateway.start(third)
    assert gateway.run(second["run"])["state"] == "stopping"
    (stages.workspace / "busy").unlink()
    until(lambda: serves(stages, third))
    assert gateway.wait_for(second["run"], "stopped")["remark"] == "left before it began"
    assert not serves(stages, second)


def test_a_successor_that_is_killed_waits_for_nobody(gateway, stages, old):
    (stages.workspace / "busy").touch()
    new = instead(stages, old)
    gateway.start(new)
    gateway.request("stop", run=new["run"], attempt=1, kill=True)
    assert gateway.wait_for(new["run"], "stopped")["remark"] == "left before it began"
    assert gateway.run(old["run"])["state"] == "stopping"
    (stages.workspace / "busy").unlink()


def test_the_gpus_of_the_old_one_are_taken_when_it_has_left_them(gateway, stages, until):
    gpus = [f"GPU-{uuid.uuid4()}"]
    old = stages.spec("old", SERVING, gpus=gpus)
    gateway.start(old)
    until(lambda: serves(stages, old))
    new = instead(stages, old, gpus=gpus)
    gateway.start(new)
    until(lambda: serves(stages, new))


def test_a_gpu_that_somebody_else_took_meanwhile_is_told_in_the_outcome(gateway, stages, old, until):
    gpus = [f"GPU-{uuid.uuid4()}"]
    (stages.workspace / "busy").touch()
    new, other = instead(stages, old, gpus=gpus), stages.spec("other", SERVING, gpus=gpus)
    gateway.start(new)
    gateway.start(other)
    (stages.workspace / "busy").unlink()
    assert codes(gateway.wait_for(new["run"], "failed")) == ["gpu_in_use"]


def test_what_a_killed_supervisor_left_is_ended_for_the_successor(gateway, stages, old, until):
    record = json.loads((stages.directory(old) / "supervisor.json").read_text())
    os.kill(record["supervisor"]["pid"], signal.SIGKILL)
    until(lambda: gateway.run(old["run"])["state"] == "unknown")
    (stages.directory(old) / "heartbeat").write_text("0 0")  # its last one is long ago
    new = instead(stages, old)
    gateway.start(new)
    until(lambda: serves(stages, new))
    assert stages.alive(old) == []


def test_the_successor_ends_what_a_supervisor_left_that_was_killed_after_it_was_asked(gateway, stages, old, until):
    (stages.workspace / "busy").touch()
    record = json.loads((stages.directory(old) / "supervisor.json").read_text())
    os.kill(record["supervisor"]["pid"], signal.SIGSTOP)  # it does not get to what it is asked
    new = instead(stages, old)
    gateway.start(new)
    os.kill(record["supervisor"]["pid"], signal.SIGKILL)
    (stages.workspace / "busy").unlink()
    until(lambda: gateway.run(old["run"])["state"] == "unknown")
    (stages.directory(old) / "heartbeat").write_text("0 0")
    until(lambda: serves(stages, new))
    assert stages.alive(old) == []
