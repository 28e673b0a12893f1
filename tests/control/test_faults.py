"""What may go wrong between laptop and host: programs and gateways killed, two starts at once, a replaced machine."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from eagle3_backend.control.commands import Await, FollowLog, Logs, Open, Rebind, ReconnectNow, Resume, Start, Stop
from eagle3_backend.findings import FindingError
from eagle3_backend.runs.store import Key, Store
from eagle3_backend.states import LinkState, RunState

KILLS = 20

PROGRAM = """
import sys, time
from pathlib import Path
from eagle3_backend.control import Control
from eagle3_backend.control.commands import Open
root = Path(sys.argv[1])
control = Control(root / "config", root / "state", root / "cache")
control.start()
control.submit(Open(root / "demo.toml")).result(120)
while True:
    time.sleep(1)
"""


def stored(campaign, run, attempt=1):
    store = Store(campaign.root / "state" / "runs.sqlite")
    (workspace,) = store._connection.execute("SELECT DISTINCT workspace FROM attempts").fetchone()
    lines = [line.text for line in store.lines(Key(workspace, run, attempt))]
    store.close()
    return lines


def test_programs_and_gateways_killed_at_random_moments_cost_no_line_and_no_run(campaign, wait_until, gateways):
    campaign.behave(vocab={"steps": 100000, "pause": 0.02})
    control = campaign.control()
    started = campaign.ask(control, Start("vocab"))
    wait_until(control, lambda now: now.stage("vocab").state is RunState.RUNNING)
    chooser = random.Random(11)
    for _ in range(KILLS):
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(campaign.root)])
        time.sleep(1.0 + chooser.random())
        program.kill()
        program.wait()
        for gateway in gateways():
            gateway.kill()
        wait_until(control, lambda now: now.host.link is LinkState.LIVE)
    snapshot = wait_until(control, lambda now: now.stage("vocab").state is RunState.RUNNING)
    assert snapshot.stage("vocab").attempt == 1
    campaign.ask(control, Stop("vocab"))
    wait_until(control, lambda now: now.stage("vocab").state is RunState.STOPPED)
    for run in started.runs:
        journal = campaign.journal(run)
        wait_until(control, lambda now, run=run, journal=journal: stored(campaign, run) == journal)
    assert len(campaign.journal(started.runs[-1])) > 100


def test_start_and_stop_are_answered_although_the_gateway_dies_under_them(campaign, wait_until, gateways):
    campaign.behave(vocab={"steps": 100000, "pause": 0.02})
    control = campaign.control()
    for command, state in ((Start("vocab"), RunState.RUNNING), (Stop("vocab"), RunState.STOPPED)):
        for gateway in gateways():
            gateway.kill()
        campaign.ask(control, command)
        wait_until(control, lambda now, state=state: now.stage("vocab").state is state)
    assert control.snapshot().stage("vocab").attempt == 1


def test_many_starts_at_once_make_one_run(campaign):
    hold = campaign.hold("setup")
    controls = [campaign.control() for _ in range(3)]
    futures = [control.submit(Start("target")) for control in controls for _ in range(3)]
    answers = [future.result(120) for future in futures]
    assert sum(not answer.already_running for answer in answers) == 1
    assert all(answer.same_chain for answer in answers if answer.already_running)
    hold.unlink()
    assert campaign.ask(controls[0], Await("target")).reached
    assert [path.name for path in campaign.workspace.glob(".eagle3/runs/demo-*/*")] == ["1", "1"]


def test_secrets_reach_the_stage_and_nothing_that_is_written(campaign, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret_of_the_test")
    campaign.behave(target={"tell": "HF_TOKEN"})
    control = campaign.control()
    campaign.ask(control, Start("target"))
    assert campaign.ask(control, Await("target")).summary["told"] == len("hf_secret_of_the_test")
    control.close()
    for folder in (campaign.workspace, campaign.root / "state", campaign.root / "config"):
        for path in folder.rglob("*"):
            assert not path.is_file() or b"hf_secret_of_the_test" not in path.read_bytes(), path


def test_a_host_reached_by_a_command_runs_the_same_chain(campaign, wait_until):
    text = campaign.profile.read_text().replace('address = "embedded"', 'transport = ["env"]')
    campaign.profile.write_text(text)
    control = campaign.control()
    campaign.ask(control, Start("vocab"))
    assert campaign.ask(control, Await("vocab")).reached
    assert wait_until(control, lambda now: now.log.lines).log.lines[-1].text == "vocab step 3"


def test_attempts_of_a_replaced_machine_are_adopted_and_resumed(campaign, wait_until):
    hold = campaign.hold("vocab")
    control = campaign.control()
    campaign.ask(control, Start("vocab"))
    run = wait_until(control, lambda now: now.stage("vocab").done == 2).stage("vocab").run
    control.close()
    kill_and_disown(campaign.workspace / ".eagle3" / "runs" / run / "1")
    later = campaign.control()
    vocab = wait_until(later, lambda now: now.stage("vocab").attempt == 1).stage("vocab")
    assert vocab.state is RunState.UNKNOWN and "run_elsewhere" in [finding.code for finding in vocab.findings]
    planned = campaign.ask(later, Rebind("embedded"))
    assert planned["attempts"] == [f"{run}/1"] and planned["lost"] == ["old-machine"]
    assert campaign.ask(later, Rebind("embedded", confirm=True))["adopted"] == [f"{run}/1"]
    assert wait_until(later, lambda now: now.stage("vocab").state is RunState.LOST)
    hold.unlink()
    campaign.ask(later, Resume("vocab"))
    assert campaign.ask(later, Await("vocab")).summary == {**later.snapshot().stage("vocab").summary, "attempt": 2}


def test_only_machines_that_were_met_under_the_name_are_declared_lost(campaign, wait_until):
    hold = campaign.hold("vocab")
    control = campaign.control()
    campaign.ask(control, Start("vocab"))
    run = wait_until(control, lambda now: now.stage("vocab").done == 2).stage("vocab").run
    control.close()
    hold.unlink()
    kill_and_disown(campaign.workspace / ".eagle3" / "runs" / run / "1")
    known = campaign.root / "config" / "hosts.toml"
    known.write_text(known.read_text().replace("machines = [", 'machines = ["third-machine", '))
    later = campaign.control()
    planned = campaign.ask(later, Rebind("embedded", confirm=True))
    assert planned["lost"] == ["third-machine"] and planned["adopted"] == []
    assert wait_until(later, lambda now: now.stage("vocab").attempt == 1).stage("vocab").state is RunState.UNKNOWN
    with pytest.raises(FindingError) as problem:
        campaign.ask(later, Resume("vocab"))
    assert [finding.code for finding in problem.value.findings] == ["run_elsewhere"]


def kill_and_disown(directory):
    """End an attempt as a power cut would, and make it one of a machine that is not this one."""
    record = json.loads((directory / "supervisor.json").read_text())
    for who in ("supervisor", "stage"):
        os.kill(record[who]["pid"], signal.SIGKILL)
    text = (directory / "supervisor.json").read_text() + (directory / "claim").read_text()
    assert record["supervisor"]["boot_id"] in text
    for name in ("supervisor.json", "claim"):
        content = json.loads((directory / name).read_text())
        for entry in [content, *content.values()]:
            if isinstance(entry, dict) and "boot_id" in entry:
                entry.update(boot_id="another-boot", host_name="old-machine")
        (directory / name).write_text(json.dumps(content))


@pytest.fixture(autouse=True)
def _no_secret_of_the_machine(monkeypatch):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_waiting_ends_when_another_profile_is_opened(campaign):
    campaign.hold("setup")
    control = campaign.control()
    campaign.ask(control, Start("setup"))
    other = campaign.profile.with_name("other.toml")
    other.write_text(campaign.profile.read_text())
    for turn in range(10):
        # A survey is asked for at the very moment in which it is called off.
        waiting = [control.submit(Await("setup")) for _ in range(3)]
        control.submit(FollowLog("setup"))
        campaign.ask(control, Open(campaign.profile if turn % 2 else other))
        for future in waiting:
            with pytest.raises(FindingError) as problem:
                future.result(60)
            assert problem.value.findings[0].code == "campaign_closed"


def test_an_unreachable_host_is_a_finding_and_goes_on_being_tried(campaign, wait_until):
    text = campaign.profile.read_text().replace('address = "embedded"', 'address = "127.0.0.1"\nport = 1')
    campaign.profile.write_text(text)
    control = campaign.control(opened=False)
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, Open(campaign.profile))
    assert problem.value.findings[0].code == "host_unreachable"
    snapshot = wait_until(control, lambda now: now.host.link is LinkState.RECONNECTING)
    assert {view.state for view in snapshot.stages} == {RunState.UNKNOWN}
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, Start("setup"))
    assert problem.value.findings[0].code == "ssh_connection_lost"


def test_without_a_link_the_log_comes_from_the_laptop(campaign, wait_until, monkeypatch, gateways):
    control = campaign.control()
    campaign.ask(control, Start("setup"))
    campaign.ask(control, Await("setup"))
    wait_until(control, lambda now: len(now.log.lines) == 4)
    monkeypatch.setattr("eagle3_backend.remote.session.BACKOFF_SECONDS", (60.0, 60.0))
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    for gateway in gateways():
        gateway.kill()
    wait_until(control, lambda now: now.host.link is LinkState.RECONNECTING)
    assert campaign.ask(control, Logs("setup"))["lines"] == [f"setup step {step}" for step in range(4)]
    assert control.snapshot().stage("setup").state is RunState.DONE
    campaign.ask(control, ReconnectNow())
    wait_until(control, lambda now: now.host.link is LinkState.LIVE)
