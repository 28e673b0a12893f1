"""What a campaign keeps on its host, and what would be missed if it were deleted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.snapshot import Event
from eagle3_backend.pipeline.plan import CampaignPlan
from eagle3_backend.pipeline.stages import STAGES

DELETE_SECONDS = 600.0
"""A store of many files takes its time on a shared file system."""

LIST_SECONDS = 120.0


async def artifacts(campaign: Campaign) -> dict[str, Any]:
    """The answer to `Artifacts`. Raises LinkLost, FindingError."""
    answer = await campaign.session.request("stored", campaign=campaign.plan.campaign, timeout=LIST_SECONDS)
    return {"artifacts": told(campaign.plan, answer["artifacts"]), "left_off": answer["left_off"]}


def told(plan: CampaignPlan, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The host's entries with what the plan and their neighbours say of them, in the order of the stages."""
    order = list(STAGES)
    found = [
        {
            **{name: value for name, value in entry.items() if name != "inputs"},
            "planned": _is_planned(plan, entry),
            "needed_by": _readers(plan, entry, entries),
        }
        for entry in entries
    ]
    return sorted(found, key=lambda entry: (order.index(entry["stage"]), not entry["planned"], -entry["modified"]))


def _is_planned(plan: CampaignPlan, entry: Mapping[str, Any]) -> bool:
    return bool(entry["name"] == plan.stages[entry["stage"]].fingerprint)


def _readers(plan: CampaignPlan, entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Stages that take this artifact by the plan, and those whose artifacts here were made of it."""
    stage, name = entry["stage"], entry["name"]
    readers = {other["stage"] for other in entries if other["whole"] and other["inputs"].get(stage) == name}
    if _is_planned(plan, entry):
        readers |= {planned.name for planned in plan.stages.values() if stage in planned.reads}
    return [reader for reader in STAGES if reader in readers]


async def delete(campaign: Campaign, path: str) -> dict[str, Any]:
    """The answer to `DeleteArtifact`. Raises LinkLost, FindingError."""
    answer = await campaign.session.request("delete", path=path, timeout=DELETE_SECONDS)
    if answer["deleted"]:
        stage = path.rpartition("/")[0].rpartition("/")[2]
        campaign.record(Event(time.time(), stage, f"deleted {path}", "info", "note"))
    campaign.look(artifacts=True)
    return answer
