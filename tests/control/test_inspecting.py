"""What can be looked at of a host: attempts, what they were started with, and model directories."""

from __future__ import annotations

import json

import pytest

from eagle3_backend.control.commands import Attempts, Await, Inspect, Open, Results, Specification, Start
from eagle3_backend.findings import FindingError


def test_attempts_of_other_parameters_are_listed_with_what_they_were_started_with(campaign):
    control = campaign.control()
    campaign.ask(control, Start("target"))
    campaign.ask(control, Await("target"))
    campaign.profile.write_text(campaign.profile.read_text().replace("smollm2-135m", "smollm2-360m"))
    campaign.ask(control, Open(campaign.profile))
    campaign.ask(control, Start("target"))
    campaign.ask(control, Await("target"))
    attempts = campaign.ask(control, Attempts())["attempts"]
    assert [entry["stage"] for entry in attempts] == ["target", "target", "setup"]
    newer, older = (campaign.ask(control, Specification(entry["run"], entry["attempt"])) for entry in attempts[:2])
    assert older["parameters"]["model"].endswith("135m") and newer["parameters"]["model"].endswith("360m")
    assert newer["fingerprint"] == attempts[0]["fingerprint"] != older["fingerprint"]
    assert "then" not in newer
    results = campaign.ask(control, Results("target"))["artifacts"]
    assert [(entry["fingerprint"], entry["planned"]) for entry in results] == [
        (newer["fingerprint"], True),
        (older["fingerprint"], False),
    ]
    assert all(entry["ended"] and isinstance(entry["summary"], dict) for entry in results)
    assert campaign.ask(control, Results("bench")) == {"artifacts": []}
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, Specification(attempts[0]["run"], 9))
    assert problem.value.findings


def test_a_drafter_on_the_host_is_read_by_its_path(campaign):
    folder = campaign.workspace / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    control = campaign.control()
    assert campaign.ask(control, Inspect(str(folder)))["config"] == {"model_type": "llama"}
    (folder / "config.json").write_text("{")
    answer = campaign.ask(control, Inspect(str(folder)))
    assert answer["config"] is None
    assert "json_invalid" in {finding["code"] for finding in answer["findings"]}
