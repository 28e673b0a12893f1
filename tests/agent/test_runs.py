"""What is true of an attempt, from its files and the kernel: other boots, other hosts, other processes."""

from __future__ import annotations

import json
import time

import pytest

from eagle3_backend.agent import processes
from eagle3_backend.agent.identity import identity_of, living, this_host


@pytest.fixture
def attempt(gateway, stages, bystander):
    """Makes the run directory of an attempt whose supervisor and stage are recorded as the bystander's process."""

    def make(**changes):
        spec = stages.spec("a", "", stage="train", parameters={"save_seconds": 0.1, "terminate_seconds": 0.1})
        directory = stages.directory(spec)
        directory.mkdir(parents=True)
        record = {**identity_of(processes.read(bystander.pid)), **changes}
        host = {name: record[name] for name in this_host().to_json()}
        now = time.monotonic()
        (directory / "claim").write_text(
            json.dumps({"request": "r", "by": "x", "host": host, "wall": 1.0, "monotonic": now})
        )
        (directory / "spec.json").write_text(json.dumps({**spec, "attempt": 1}))
        (directory / "supervisor.json").write_text(
            json.dumps({"supervisor": record, "stage": record, "generation": "g", "started": 1.0, "monotonic": now})
        )
        (directory / "heartbeat").write_text(f"{now - 60:020.3f} {time.time() - 60:020.3f}\n")
        return spec

    return make


def test_the_recorded_process_is_recognised(gateway, attempt):
    assert gateway.run(attempt()["run"])["state"] == "running"


@pytest.mark.parametrize(
    ("changes", "state", "remark"),
    [
        ({"boot_id": "another"}, "lost", "host rebooted at"),
        ({"pid_namespace": "pid:[1]"}, "lost", "the container was restarted"),
        ({"host_name": "elsewhere"}, "unknown", "on host elsewhere"),
        ({"host_name": "elsewhere", "boot_id": "another"}, "unknown", "on host elsewhere"),
        ({"ticks": 12345}, "crashed", "last heartbeat"),
    ],
)
def test_a_process_that_differs_in_one_part_is_not_ours_and_never_signalled(
    gateway, attempt, refused, bystander, changes, state, remark
):
    spec = attempt(**changes)
    entry = gateway.run(spec["run"])
    assert entry["state"] == state and remark in entry["remark"]
    try:
        gateway.request("stop", run=spec["run"], attempt=1)
    except refused as problem:
        assert problem.code == "run_elsewhere"
    time.sleep(0.5)
    assert bystander.poll() is None


def test_an_attempt_of_another_host_blocks_a_start_until_that_host_is_declared_lost(gateway, attempt, refused):
    spec = attempt(host_name="elsewhere", boot_id="boot-of-elsewhere")
    with pytest.raises(refused) as problem:
        gateway.start(spec)
    assert problem.value.code == "run_elsewhere"
    assert gateway.request("adopt_host", lost=["boot-of-elsewhere"]) == {"lost": ["boot-of-elsewhere"]}
    entry = gateway.run(spec["run"])
    assert (entry["state"], entry["remark"]) == ("lost", "host elsewhere was replaced")
    assert gateway.start(spec)["attempt"] == 2


def test_a_host_cannot_be_declared_lost_by_itself(gateway, refused):
    with pytest.raises(refused):
        gateway.request("adopt_host", lost=[this_host().boot_id])


@pytest.mark.parametrize("part", ["host_name", "boot_id", "pid_namespace", "pid", "ticks"])
def test_an_identity_holds_only_as_a_whole(bystander, part):
    record = identity_of(processes.read(bystander.pid))
    assert living(record) is not None
    assert living({**record, part: 1 if part in ("pid", "ticks") else "another"}) is None
    assert living({key: value for key, value in record.items() if key != part}) is None


def test_a_list_too_long_for_a_frame_keeps_the_newest(gateway, stages):
    for number in range(1, 31):
        directory = stages.directory({"run": "campaign-train-x"}, number)
        directory.mkdir(parents=True)
        (directory / "claim").write_text(json.dumps({"wall": float(number)}))
        outcome = {"state": "failed", "ended": 1.0, "reason": "r", "findings": ["x" * 60_000]}
        (directory / "exit.json").write_text(json.dumps(outcome))
    answer = gateway.request("runs")
    attempts = [entry["attempt"] for entry in answer["runs"]]
    assert attempts == list(range(31 - len(attempts), 31)) and len(attempts) > 10
    assert answer["left_off"] == 30 - len(attempts)


def test_a_zombie_is_no_living_process(bystander):
    bystander.kill()
    deadline = time.monotonic() + 20
    while processes.read(bystander.pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_signal_to_another_start_time_is_not_sent(bystander):
    process = processes.read(bystander.pid)
    assert not processes.send(process._replace(ticks=process.ticks + 1), 9)
    assert bystander.poll() is None
    assert processes.send(process, 9)
    assert bystander.wait() == -9
