"""Diagnosing a running server without a pipeline: the run on the host, with a stage of the tests in its place."""

from __future__ import annotations

import json

import pytest

from eagle3_backend.control import chain, diagnosing
from eagle3_backend.control.commands import Diagnose
from eagle3_backend.control.running import RunningServer, Wanted, measure, record_of
from eagle3_backend.engines.answers import Prompt
from eagle3_backend.findings import FindingError

DRAFTED = ("--speculative-config", json.dumps({"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}))
TOLD = ("--per-request-spec-decode-metrics", "detailed")
PROMPTS = [Prompt(str(number), "file", f"Question {number}: why is it so?") for number in range(4)]
RECORD = {"depth": 3, "dtype": None, "requests": [{"id": "a", "prompt_tokens": [1], "tokens": [2], "accepted": [0]}]}


@pytest.fixture
def control(campaign, monkeypatch):
    monkeypatch.setattr(diagnosing, "spec_of", chain.spec_of)  # the one that runs the stage of the tests
    return campaign.control()


@pytest.fixture
def directories(campaign):
    return str(campaign.drafter), str(campaign.root / "templates" / "target")


def refused(campaign, control, command):
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, command)
    return [finding.code for finding in problem.value.findings]


def test_a_replay_needs_no_stage_before_it_and_is_done_once_for_the_same_record(campaign, control, directories):
    answer = campaign.ask(control, Diagnose(RECORD, *directories))
    assert answer["made"] == "diagnose" and answer["attempt"] == 1
    assert {view.name for view in control.snapshot().stages if view.fresh} == set()
    spec = json.loads((campaign.workspace / ".eagle3/runs" / answer["run"] / "1/spec.json").read_text())
    assert (spec["inputs"]["drafter"], spec["inputs"]["target"]) == directories
    with open(spec["inputs"]["requests"]) as file:
        assert json.load(file) == RECORD
    assert campaign.ask(control, Diagnose(RECORD, *directories)) == answer
    other = campaign.ask(control, Diagnose({**RECORD, "depth": 2}, *directories))
    assert other["run"] != answer["run"]


def test_a_replay_that_fails_tells_its_findings(campaign, control, directories):
    campaign.behave(diagnose={"fail": True})
    assert refused(campaign, control, Diagnose(RECORD, *directories)) == ["loss_nan"]


def test_what_is_not_on_the_host_is_refused_before_a_start(campaign, control, directories):
    assert refused(campaign, control, Diagnose(RECORD, "/nowhere", directories[1])) == [
        "file_missing",
        "folder_unreadable",
    ]
    assert not list(campaign.workspace.glob(".eagle3/runs/endpoint-*"))


def test_a_record_holds_every_answer_with_its_steps_and_tokens(serve):
    server = RunningServer(serve("vllm", *DRAFTED, *TOLD), "secret")
    _, rounds = measure(server, PROMPTS, Wanted(4, 24, (2,)))
    record = record_of(server, rounds)
    assert (record["depth"], record["dtype"], len(record["requests"])) == (3, None, 4)
    assert all(len(row["accepted"]) == 12 and len(row["tokens"]) == 24 for row in record["requests"])


@pytest.mark.parametrize(
    ("engine", "flags"), [("vllm", DRAFTED), ("sglang", ("--speculative-algorithm", "EAGLE3"))], ids=["vllm", "sglang"]
)
def test_a_server_that_does_not_tell_its_steps_cannot_be_replayed_and_it_is_said_why(serve, engine, flags):
    server = RunningServer(serve(engine, *flags), "secret")
    _, rounds = measure(server, PROMPTS, Wanted(4, 24, (2,)))
    with pytest.raises(FindingError) as problem:
        record_of(server, rounds)
    (finding,) = problem.value.findings
    assert finding.code == "replay_not_possible" and finding.severity.value == "error"
    assert "every verify step" in finding.message
