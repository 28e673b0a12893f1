"""What a panel asks beside the snapshot: places in a log, artifacts, processes, orphans, other hosts."""

from __future__ import annotations

import asyncio
import os
import tomllib
from types import SimpleNamespace

import pytest

from eagle3_backend.agent import locks
from eagle3_backend.control import inspecting
from eagle3_backend.control.commands import (
    AddHost,
    Artifact,
    Attempts,
    Await,
    FindLogTime,
    Locks,
    Metrics,
    Orphans,
    Processes,
    ReadLog,
    Start,
)
from eagle3_backend.findings import FindingError, error


@pytest.fixture
def trained(campaign):
    """A campaign whose training is done, and its control."""
    campaign.behave(train={"steps": 300})
    control = campaign.control()
    campaign.ask(control, Start("train"))
    assert campaign.ask(control, Await("train")).reached
    return campaign, control


def texts(block):
    return [line.text for line in block.lines]


def test_a_log_is_read_by_places_and_searched(trained, wait_until):
    campaign, control = trained
    wait_until(control, lambda now: now.log.stage == "train" and len(now.log.lines) == 300)
    tail = campaign.ask(control, ReadLog("train", count=10))
    assert texts(tail) == [f"train step {step}" for step in range(290, 300)] and tail.last and tail.generation
    before = campaign.ask(control, ReadLog("train", at=tail.start, count=10))
    assert texts(before)[-1] == "train step 289" and before.end == tail.start
    head = campaign.ask(control, ReadLog("train", at=0, ahead=True, count=3))
    assert texts(head) == ["train step 0", "train step 1", "train step 2"] and head.first
    assert texts(campaign.ask(control, ReadLog("train", count=5, match="step 4$"))) == ["train step 4"]
    for faulty, code in ((ReadLog("train", match="("), "pattern_invalid"), (ReadLog("bench"), "run_absent")):
        with pytest.raises(FindingError) as refused:
            campaign.ask(control, faulty)
        assert refused.value.findings[0].code == code
    with pytest.raises(FindingError) as refused:
        campaign.ask(control, FindLogTime("train", 0, "14:02"))
    assert refused.value.findings[0].code == "time_absent"


def test_a_part_of_a_log_that_is_not_on_the_laptop_is_brought(trained, wait_until):
    campaign, control = trained
    wait_until(control, lambda now: now.log.stage == "train" and len(now.log.lines) == 300)
    (segment,) = (campaign.root / "state" / "logs").rglob("*train*/1/*-0")
    whole = segment.read_bytes()
    cut = whole.rfind(b"\n", 0, len(whole) // 2) + 1
    segment.with_name(f"{segment.name[:-2]}-{cut}").write_bytes(whole[cut:])
    segment.unlink()
    hole = campaign.ask(control, ReadLog("train", at=cut)).lines
    assert [line.kind for line in hole] == ["skipped"] and hole[0].end == cut
    block = campaign.ask(control, ReadLog("train", at=cut, fetch=True))
    assert texts(block)[0] == "train step 0" and block.first and block.end == cut


def test_an_artifact_is_told_with_its_files_and_who_made_it(trained):
    campaign, control = trained
    artifact = campaign.ask(control, Artifact("train"))
    assert artifact["bytes"] == sum(entry["bytes"] for entry in artifact["files"]) and artifact["file_count"] >= 1
    assert all(len(entry["sha256"]) == 64 for entry in artifact["files"]) and artifact["made_by"]["attempt"] == 1
    assert campaign.ask(control, Artifact("bench")) is None


def test_series_come_with_the_time_of_their_steps_and_by_run(trained):
    campaign, control = trained
    answer = campaign.ask(control, Metrics("train"))
    steps = [step for step, _ in answer["clock"]]
    assert steps == sorted(steps) and 2 <= len(steps) <= 500 and steps[-1] == 299.0
    entry = next(one for one in campaign.ask(control, Attempts())["attempts"] if one["stage"] == "train")
    again = campaign.ask(control, Metrics("train", attempt=entry["attempt"], run=entry["run"]))
    assert again["series"] == answer["series"] and entry["ended"] >= entry["started"]


def test_the_snapshot_tells_price_time_spent_and_gauges(trained, wait_until):
    _, control = trained
    snapshot = wait_until(control, lambda now: bool(now.gauges))
    assert snapshot.price_per_hour == 36.0 and snapshot.spent_seconds > 0
    assert "cpu percent" in snapshot.gauges and snapshot.host.agent.startswith("protocol ")


def test_processes_and_orphans_are_told(trained):
    campaign, control = trained
    processes = campaign.ask(control, Processes())["processes"]
    assert processes and {"pid", "user", "command", "cpu_percent", "memory", "gpus", "run"} <= processes[0].keys()
    assert campaign.ask(control, Orphans()) == {"orphans": []}


def test_held_locks_are_told_with_thing_and_holder(trained):
    campaign, control = trained
    name = locks.name_of("artifact", f"{campaign.root}/w/somewhere")
    held = locks.take([name], "a-run")
    (told,) = [lock for lock in campaign.ask(control, Locks())["locks"] if lock["thing"] == name[1]]
    assert (told["kind"], told["run"], told["orphaned"]) == ("artifact", "a-run", False)
    assert [process["pid"] for process in told["processes"]] == [os.getpid()]
    locks.release(held)
    assert name[1] not in {lock["thing"] for lock in campaign.ask(control, Locks())["locks"]}


@pytest.mark.parametrize("code", ["operation_unknown", "local_directory_unsafe"])
def test_an_agent_that_knows_no_locks_says_so_and_other_refusals_stay(code):
    class Session:
        name = "box"

        async def request(self, op):
            raise FindingError(error(code, "n"))

    asked = inspecting.locks(SimpleNamespace(session=Session()))
    if code == "operation_unknown":
        answer = asyncio.run(asked)
        assert (answer["locks"], answer["problem"]["code"]) == ([], "locks_unreadable")
    else:
        with pytest.raises(FindingError):
            asyncio.run(asked)


def test_another_host_gets_a_copy_of_the_profile(campaign, tmp_path):
    control = campaign.control()
    campaign.profile.write_text("# mine\n" + campaign.profile.read_text())
    path = campaign.ask(control, AddHost("gpu box/7", tmp_path / "profiles"))
    text = (tmp_path / "profiles" / "gpu-box-7.toml").read_text()
    assert path == str(tmp_path / "profiles" / "gpu-box-7.toml") and text.startswith("# mine\n")
    assert tomllib.loads(text)["host"]["address"] == "gpu box/7"
    assert tomllib.loads(text)["stages"]["prompts"]["files"] == [str(campaign.root / "prompts.jsonl")]
    with pytest.raises(FindingError) as refused:
        campaign.ask(control, AddHost("gpu box/7", tmp_path / "profiles"))
    assert refused.value.findings[0].code == "profile_exists"
