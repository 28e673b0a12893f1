"""What a campaign keeps on its host, and what is missed when some of it goes."""

from __future__ import annotations

import os

import pytest

from eagle3_backend.control.commands import Artifacts, Await, DeleteArtifact, Start
from eagle3_backend.findings import FindingError
from eagle3_backend.states import RunState


def test_an_artifact_is_deleted_and_its_stage_is_no_longer_fresh(campaign, wait_until):
    control = campaign.control()
    for restart in (False, True):
        campaign.ask(control, Start("prompts", restart=restart))
        campaign.ask(control, Await("prompts"))
    told = campaign.ask(control, Artifacts())["artifacts"]
    assert [(entry["stage"], entry["planned"], entry["aside"]) for entry in told] == [
        ("setup", True, False),
        ("prompts", True, False),
        ("prompts", False, True),
    ]
    made, old = told[1:]
    assert made["whole"] and "generate" in made["needed_by"] and old["needed_by"] == []
    assert campaign.ask(control, DeleteArtifact(old["path"]))["deleted"]
    assert control.snapshot().stage("prompts").fresh
    assert campaign.ask(control, DeleteArtifact(made["path"]))["bytes"] == made["bytes"]
    wait_until(control, lambda picture: not picture.stage("prompts").fresh)
    assert control.snapshot().stage("prompts").state is RunState.READY and not os.path.exists(made["path"])
    assert any(event.text == f"deleted {made['path']}" for event in control.snapshot().events)
    assert not campaign.ask(control, DeleteArtifact(made["path"]))["deleted"]


def test_what_a_run_works_with_is_refused(campaign, wait_until):
    control = campaign.control()
    held = campaign.hold("prompts")
    campaign.ask(control, Start("prompts"))
    # From its first file on: nothing is deleted, and nothing refused, of what is not there.
    wait_until(control, lambda picture: os.path.exists(f"{picture.stage('prompts').output}/steps"))
    with pytest.raises(FindingError) as refused:
        campaign.ask(control, DeleteArtifact(control.snapshot().stage("prompts").output))
    assert refused.value.findings[0].code == "artifact_in_use"
    held.unlink()
