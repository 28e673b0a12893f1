"""The whole path from a command to a stage on a host and back, on the embedded host with stages of the tests."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from eagle3_backend.control.commands import (
    Await,
    Doctor,
    DryRun,
    FollowLog,
    Forecast,
    Hosts,
    Logs,
    Metrics,
    Open,
    Rebind,
    Resume,
    Shell,
    Start,
    Status,
    Stop,
)
from eagle3_backend.findings import FindingError, Severity
from eagle3_backend.pipeline.environments import SETS, marker_of
from eagle3_backend.pipeline.stages import needed
from eagle3_backend.remote.session import HostSession
from eagle3_backend.runs.store import Key, Store
from eagle3_backend.states import LinkState, RunState

BENCH = needed("bench")


def refused(campaign, control, command):
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, command)
    return [finding.code for finding in problem.value.findings]


def test_a_chain_runs_to_its_end_and_a_second_start_does_nothing(campaign):
    control = campaign.control()
    before = control.snapshot()
    assert before.stage("setup").state is RunState.READY
    assert before.stage("train").state is RunState.BLOCKED and "extract" in before.stage("train").blocked_by
    started = campaign.ask(control, Start("bench"))
    assert started.stages == BENCH and not started.already_running
    outcome = campaign.ask(control, Await("bench"))
    assert outcome.reached and outcome.state is RunState.DONE and outcome.summary["made"] == "bench"
    after = control.snapshot()
    assert {view.name: view.state for view in after.stages if view.name in BENCH} == dict.fromkeys(BENCH, RunState.DONE)
    assert all(after.stage(name).fresh for name in BENCH)
    again = campaign.ask(control, Start("bench"))
    assert again.runs == () and again.fresh == BENCH


def test_progress_metrics_log_and_events_of_a_stage_at_work_are_in_the_snapshot(campaign, wait_until):
    hold = campaign.hold("train")
    control = campaign.control()
    told = []
    control.subscribe(told.append)
    campaign.ask(control, Start("train"))
    snapshot = wait_until(control, lambda now: now.stage("train").done == 2 and len(now.log.lines) == 2)
    view = snapshot.stage("train")
    assert (view.state, view.total, view.unit, view.attempt) == (RunState.RUNNING, 4, "steps", 1)
    assert view.eta == pytest.approx(0.2) and view.elapsed is not None
    assert snapshot.series["train/loss"] == ((0.0, 1.0), (1.0, 0.5)) and view.metrics["train/loss"] == 0.5
    assert snapshot.log.stage == "train" and [line.text for line in snapshot.log.lines] == [
        "train step 0",
        "train step 1",
    ]
    campaign.ask(control, FollowLog("vocab"))
    assert (
        wait_until(control, lambda now: now.log.stage == "vocab" and now.log.lines).log.lines[-1].text == "vocab step 3"
    )
    campaign.ask(control, FollowLog("bench"))
    assert wait_until(control, lambda now: now.log.stage == "bench").log.lines == ()
    hold.unlink()
    campaign.ask(control, Await("train"))
    assert ("vocab", "artifact") in {(event.source, event.kind) for event in told}
    assert ("train", "done") in {(event.source, event.text) for event in control.snapshot().events}


def test_stages_behind_the_one_at_work_are_queued(campaign, wait_until):
    campaign.hold("prompts")
    control = campaign.control()
    campaign.ask(control, Start("vocab"))
    snapshot = wait_until(control, lambda now: now.stage("prompts").state is RunState.RUNNING)
    assert snapshot.stage("vocab").state is RunState.QUEUED and snapshot.stage("vocab").remark == "behind prompts"
    assert snapshot.stage("train").state is RunState.BLOCKED


def test_two_programs_on_one_state_folder_follow_the_same_chain(campaign, wait_until):
    hold = campaign.hold("generate")
    panel, command = campaign.control(), campaign.control()
    started = campaign.ask(panel, Start("vocab"))
    wait_until(command, lambda now: now.stage("generate").state is RunState.RUNNING)
    joined = campaign.ask(command, Start("vocab"))
    assert joined.already_running and joined.same_chain
    other = campaign.ask(command, Start("bench"))
    assert other.already_running and not other.same_chain
    hold.unlink()
    outcomes = [campaign.ask(control, Await("vocab")) for control in (panel, command)]
    assert [outcome.reached for outcome in outcomes] == [True, True]
    store = Store(campaign.root / "state" / "runs.sqlite")
    workspace = store._connection.execute("SELECT DISTINCT workspace FROM attempts").fetchall()
    assert len(workspace) == 1
    for control in (panel, command):
        wait_until(control, lambda now: now.stage("vocab").done == 4)
    for run in started.runs:
        assert [line.text for line in store.lines(Key(workspace[0][0], run, 1))] == campaign.journal(run)
    store.close()


def test_a_chain_goes_on_while_no_program_looks(campaign, wait_until):
    hold = campaign.hold("target")
    control = campaign.control()
    campaign.ask(control, Start("vocab"))
    wait_until(control, lambda now: now.stage("target").state is RunState.RUNNING)
    control.close()
    hold.unlink()
    later = campaign.control()
    assert campaign.ask(later, Await("vocab")).reached
    snapshot = wait_until(later, lambda now: now.stage("vocab").done == 4)
    assert snapshot.series["vocab/loss"][-1] == (3.0, 0.25)


def test_a_killed_stage_is_stopped_at_once_and_can_be_resumed(campaign, wait_until):
    campaign.hold("train")
    control = campaign.control()
    campaign.ask(control, Start("train"))
    wait_until(control, lambda now: now.stage("train").done == 2)
    campaign.ask(control, Stop("train", kill=True))
    outcome = campaign.ask(control, Await("train"))
    assert (outcome.state, outcome.reached) == (RunState.STOPPED, False)
    assert control.snapshot().stage("train").remark.startswith("killed as asked")


def test_a_host_is_left_at_once_and_found_again_with_its_profile(campaign, wait_until, monkeypatch):
    control = campaign.control()
    [known] = campaign.ask(control, Hosts())["hosts"]
    assert known["profile"] == str(campaign.profile)
    closing, dead, real = threading.Event(), threading.Event(), HostSession.close

    async def hang(session):
        closing.set()
        await asyncio.to_thread(dead.wait, 120)
        await real(session)

    other = campaign.profile.with_name("other.toml")
    other.write_text(campaign.profile.read_text())
    with monkeypatch.context() as patch:
        patch.setattr(HostSession, "close", hang)
        campaign.ask(control, Open(other))
    assert closing.wait(30)
    assert control.snapshot().profile == str(other) and control.snapshot().host.link is LinkState.LIVE
    assert campaign.ask(control, Hosts())["hosts"][0]["profile"] == str(other)
    dead.set()


def test_a_shell_begins_in_the_run_directory_of_the_newest_attempt(campaign):
    control = campaign.control()
    assert campaign.ask(control, Shell("setup"))["directory"] == str(campaign.workspace)
    campaign.ask(control, Start("setup"))
    campaign.ask(control, Await("setup"))
    told = campaign.ask(control, Shell("setup"))
    assert (Path(told["directory"]) / "spec.json").is_file() and told["argv"][-1].startswith("cd ")


def test_a_stopped_stage_is_resumed_with_the_chain_that_stood_behind_it(campaign, wait_until):
    hold = campaign.hold("train")
    control = campaign.control()
    campaign.ask(control, Start("export"))
    wait_until(control, lambda now: now.stage("train").done == 2)
    assert campaign.ask(control, Stop("train")) in ("stopping", "stopped")
    outcome = campaign.ask(control, Await("export"))
    assert not outcome.reached and (outcome.stage, outcome.state) == ("train", RunState.STOPPED)
    assert control.snapshot().stage("export").state is RunState.BLOCKED
    hold.unlink()
    started = campaign.ask(control, Resume("train"))
    assert started.stages == ("train", "export")
    assert campaign.ask(control, Await("export")).reached
    snapshot = wait_until(
        control, lambda now: now.stage("train").state is RunState.DONE and now.stage("train").done == 4
    )
    assert snapshot.stage("train").attempt == 2 and snapshot.stage("train").summary["attempt"] == 2
    assert [step for step, _ in snapshot.series["train/loss"]] == [0.0, 1.0, 2.0, 3.0]


def test_a_failed_stage_ends_the_chain_with_its_finding(campaign):
    campaign.behave(vocab={"fail": True})
    control = campaign.control()
    campaign.ask(control, Start("train"))
    outcome = campaign.ask(control, Await("train"))
    assert not outcome.reached and (outcome.stage, outcome.state) == ("vocab", RunState.FAILED)
    assert "loss_nan" in [finding.code for finding in outcome.findings]
    assert outcome.stages["train"] == "blocked"


def test_restart_sets_the_old_artifact_aside(campaign, wait_until):
    control = campaign.control()
    campaign.ask(control, Start("prompts"))
    campaign.ask(control, Await("prompts"))
    output = control.snapshot().stage("prompts").output
    started = campaign.ask(control, Start("prompts", restart=True))
    assert started.stages == ("prompts",)
    assert campaign.ask(control, Await("prompts")).summary["attempt"] == 2
    assert len(list(campaign.workspace.glob("demo/prompts/*.old-*"))) == 1 and os.path.isdir(output)
    for attempt in (1, 2):
        campaign.ask(control, FollowLog("prompts", attempt))
        log = wait_until(control, lambda now, attempt=attempt: now.log.attempt == attempt and bool(now.log.lines)).log
        assert log.stage == "prompts" and log.lines[-1].text == "prompts step 3"


def test_changed_parameters_leave_stages_done_but_out_of_date(campaign):
    control = campaign.control()
    campaign.ask(control, Start("vocab"))
    campaign.ask(control, Await("vocab"))
    campaign.ask(control, Open(campaign.profile, ("generate.max_new_tokens=7",)))
    snapshot = control.snapshot()
    assert snapshot.stage("target").fresh
    generate, vocab = snapshot.stage("generate"), snapshot.stage("vocab")
    assert (generate.state, generate.fresh, generate.outdated_by) == (RunState.DONE, False, ("parameters",))
    assert (vocab.state, vocab.fresh, vocab.outdated_by) == (RunState.DONE, False, ("generate",))
    assert campaign.ask(control, Start("vocab")).stages == ("generate", "vocab")
    campaign.ask(control, Await("vocab"))


def test_an_error_blocks_the_start_until_its_code_is_accepted(campaign):
    campaign.write_profile(python="/no/such/python")
    control = campaign.control()
    assert refused(campaign, control, Start("target")) == ["environment_missing"]
    assert control.snapshot().stage("setup").state is RunState.READY
    assert [finding.severity for finding in control.snapshot().findings] == [Severity.ERROR]
    campaign.ask(control, Start("target", accept=("environment_missing",)))
    assert campaign.ask(control, Await("target")).reached
    spec = next(campaign.workspace.glob(".eagle3/runs/demo-target-*/1/spec.json")).read_text()
    assert '"environment_missing"' in spec


def test_a_stage_alone_needs_what_it_stands_on(campaign):
    control = campaign.control()
    assert refused(campaign, control, Start("vocab", only=True)) == ["stage_blocked"]
    assert refused(campaign, control, Stop("train")) == ["stage_not_running"]
    assert refused(campaign, control, Resume("train")) == ["stage_not_resumable"]


def test_one_start_runs_the_chains_of_several_stages(campaign):
    control = campaign.control()
    planned = campaign.ask(control, DryRun("target", also=("prompts",)))["stages"]
    assert [spec["stage"] for spec in planned] == ["setup", "target", "prompts"]
    assert campaign.ask(control, Start("target", also=("prompts",))).stages == ("setup", "target", "prompts")
    assert campaign.ask(control, Await("prompts")).reached
    assert control.snapshot().stage("target").fresh


def test_a_service_is_reached_when_it_says_that_it_is_ready(campaign, wait_until):
    control = campaign.control()
    campaign.ask(control, Start("serve"))
    outcome = campaign.ask(control, Await("serve"))
    assert outcome.reached and outcome.state is RunState.RUNNING
    campaign.ask(control, Stop("serve"))
    assert wait_until(control, lambda now: now.stage("serve").state is RunState.STOPPED)


def test_a_killed_gateway_makes_states_unknown_until_the_link_is_back(campaign, wait_until, gateways):
    hold = campaign.hold("train")
    control = campaign.control()
    campaign.ask(control, Start("train"))
    # A stage's end may be told after its successor's first steps.
    wait_until(control, lambda now: now.stage("train").done == 2 and now.stage("vocab").state is RunState.DONE)
    seen = []
    control.subscribe(lambda event: seen.append((event.kind, control.snapshot().host.link)))
    for gateway in gateways():
        gateway.kill()
    lost = wait_until(control, lambda now: now.host.link is not LinkState.LIVE)
    train = lost.stage("train")
    assert (train.state, train.last_state) == (RunState.UNKNOWN, RunState.RUNNING) and train.as_of is not None
    assert lost.stage("vocab").state is RunState.DONE
    wait_until(control, lambda now: now.stage("train").state is RunState.RUNNING)
    hold.unlink()
    assert campaign.ask(control, Await("train")).reached
    assert wait_until(control, lambda now: now.stage("train").done == 4).stage("train").attempt == 1
    assert "link" in {kind for kind, _ in seen}


def test_the_laptops_folders_can_be_deleted_and_come_back_from_the_host(campaign, wait_until):
    control = campaign.control()
    campaign.ask(control, Start("vocab"))
    campaign.ask(control, Await("vocab"))
    control.close()
    subprocess.run(["rm", "-rf", campaign.root / "state"], check=True)
    later = campaign.control()
    snapshot = wait_until(later, lambda now: all(now.stage(name).done == 4 for name in needed("vocab")))
    assert snapshot.series["generate/loss"][-1] == (3.0, 0.25)
    assert wait_until(later, lambda now: now.log.lines).log.lines[-1].text == "vocab step 3"


def test_logs_and_metrics_are_answered_from_host_and_store(campaign, wait_until):
    control = campaign.control()
    campaign.ask(control, Start("target"))
    campaign.ask(control, Await("target"))
    wait_until(control, lambda now: now.stage("target").done == 4)
    whole = campaign.ask(control, Logs("target"))
    assert whole["lines"] == [f"target step {step}" for step in range(4)]
    part = campaign.ask(control, Logs("target", offset=0, length=20))
    assert (
        part["lines"] == ["target step 0"] and part["partial"] == "target" and part["data"] == b"target step 0\ntarget"
    )
    rest = campaign.ask(control, Logs("target", offset=part["next_offset"]))
    assert rest["lines"] == whole["lines"][1:] and rest["next_offset"] == whole["size"]
    answer = campaign.ask(control, Metrics("target"))
    assert answer["series"] == {"target/loss": [[0.0, 1.0], [1.0, 0.5], [2.0, 1 / 3], [3.0, 0.25]]}
    assert refused(campaign, control, Logs("bench")) == ["run_absent"]
    assert refused(campaign, control, Metrics("target", attempt=9)) == ["run_absent"]


def test_the_dry_run_names_what_a_start_brings_from_the_laptop(campaign):
    script = campaign.ask(campaign.control(), DryRun("prompts"))["script"]
    assert re.search(r"^#   .*/\.eagle3/uploads/[0-9a-f]{64}/prompts\.jsonl$", script, re.MULTILINE)


def test_the_dry_run_is_a_shell_script_of_what_is_not_fresh(campaign):
    control = campaign.control()
    campaign.ask(control, Start("setup"))
    campaign.ask(control, Await("setup"))
    answer = campaign.ask(control, DryRun("generate"))
    assert answer["fresh"] == ["setup"] and [spec["stage"] for spec in answer["stages"]] == list(needed("generate")[1:])
    assert "vllm.entrypoints" in answer["script"] and "--port" in answer["script"]
    script = campaign.root / "script.sh"
    script.write_text(answer["script"])
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


def test_forecasts_scale_with_what_this_host_did_before(campaign):
    control = campaign.control()
    first = campaign.ask(control, Forecast("prompts"))
    assert [entry["stage"] for entry in first["stages"]] == ["setup", "prompts"]
    campaign.ask(control, Start("prompts"))
    campaign.ask(control, Await("prompts"))
    campaign.ask(control, Open(campaign.profile, ("prompts.seed=3",)))
    (entry,) = campaign.ask(control, Forecast("prompts"))["stages"]
    assert entry["basis"] == "an earlier run on this host" and entry["seconds"] > 0
    campaign.ask(control, Open(campaign.profile, ('prompts.files=["hub:lab/chats:train"]',)))
    told = {entry["stage"]: entry["seconds"] for entry in campaign.ask(control, Forecast("bench"))["stages"]}
    assert told["generate"] is None and told["bench"] is not None
    assert "prompts_empty" not in [found["code"] for found in campaign.ask(control, DryRun("prompts"))["findings"]]


def test_a_list_of_hosts_that_cannot_be_written_stops_no_campaign(campaign):
    (campaign.root / "config" / f"hosts.toml.{os.getpid()}").mkdir(parents=True)  # where it is written before it moves
    control = campaign.control()
    assert campaign.ask(control, Status())["host"]["link"] == "live"
    assert campaign.ask(control, Hosts())["hosts"] == []


def test_a_state_folder_that_cannot_be_written_is_named(campaign):
    (campaign.root / "state").write_text("no folder at all")
    control = campaign.control(opened=False)
    assert refused(campaign, control, Open(campaign.profile)) == ["laptop_file_unusable"]


def test_status_doctor_and_hosts_are_plain_values(campaign):
    control = campaign.control()
    status = campaign.ask(control, Status())
    assert status["campaign"] == "demo" and status["host"]["link"] == "live"
    assert status["stages"][0]["state"] == "ready"
    checks = campaign.ask(control, Doctor())["checks"]
    assert {"area", "name", "level", "message", "fix"} == set(checks[0]) == set(checks[-1])
    (host,) = campaign.ask(control, Hosts())["hosts"]
    assert host["name"] == "embedded" and host["workspaces"] == [str(campaign.workspace)]


def test_rebind_without_a_change_names_nothing_to_adopt(campaign):
    control = campaign.control()
    assert refused(campaign, control, Rebind("other")) == ["confirmation_missing"]
    answer = campaign.ask(control, Rebind("embedded"))
    assert answer["attempts"] == [] and answer["lost"] == []


def test_a_smoke_campaign_has_runs_of_its_own(campaign):
    control = campaign.control()
    whole = control.snapshot().stage("generate").run
    campaign.ask(control, Open(campaign.profile, smoke=True))
    assert control.snapshot().stage("generate").run != whole


def test_a_faulty_profile_is_refused_and_nothing_is_open(campaign):
    campaign.write_profile("\n[stages.trian]\nepochs = 1\n")
    control = campaign.control(opened=False)
    assert refused(campaign, control, Open(campaign.profile)) == ["profile_key_unknown"]
    assert refused(campaign, control, Status()) == ["campaign_not_open"]
    assert campaign.ask(control, Hosts())["hosts"] == []


def test_prompt_files_without_a_record_refuse_the_start_before_anything_is_built(campaign):
    (campaign.root / "prompts.jsonl").write_text("")
    control = campaign.control()
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, Start("generate"))
    assert [finding.code for finding in problem.value.findings] == ["prompts_empty"]
    assert not list(campaign.workspace.glob(".eagle3/runs/*"))


def test_only_environments_that_are_not_there_are_in_the_forecast(campaign):
    campaign.write_profile('\n[environments.sglang]\nset = "train-cpu"\n')
    control = campaign.control()
    (missing,) = campaign.ask(control, Forecast("setup"))["stages"]
    marker = Path(marker_of("sglang", "train-cpu", str(campaign.workspace)))
    marker.parent.mkdir(parents=True)
    marker.write_text("{}")
    (there,) = campaign.ask(control, Forecast("setup"))["stages"]
    assert (missing["bytes"], there["bytes"]) == (SETS["train-cpu"].bytes_needed, 0)
