"""What can be looked at of a campaign's past: its attempts, and what each was started with."""

from __future__ import annotations

import base64
import json
from typing import Any

from eagle3_backend.control.acts import view_of
from eagle3_backend.control.campaign import Campaign
from eagle3_backend.findings import FindingError, error, warning
from eagle3_backend.pipeline.stages import STAGES

LARGEST = 512 * 1024
"""Bytes of a spec.json that are read; one with a whole chain behind it has some tens of kilobytes."""

TOLD = ("stage", "run", "attempt", "fingerprint", "state", "started", "ended", "elapsed", "remark")
FILES = 200
"""Files of an artifact that are listed."""

RESULTS = 12
"""Artifacts of a stage under other parameters that are looked at."""

ORPHANED = "remote_process_orphaned"


def attempts(campaign: Campaign) -> dict[str, Any]:
    """The answer to `Attempts`, from the newest survey: stages from the last on, each newest first."""
    order = list(STAGES)
    known = [run for run in campaign.survey.runs if run.get("stage") in STAGES]
    known.sort(key=lambda run: (order.index(run["stage"]), run.get("started") or 0.0), reverse=True)
    return {"attempts": [{name: run.get(name) for name in TOLD} for run in known]}


async def specification(campaign: Campaign, run: str, attempt: int) -> dict[str, Any]:
    """The answer to `Specification`. Raises LinkLost, FindingError."""
    answer = await campaign.session.request(
        "read", run=run, attempt=attempt, file="spec.json", offset=0, length=LARGEST
    )
    try:
        found = json.loads(base64.b64decode(answer["data"]))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FindingError(
            error("specification_unreadable", f"The spec.json of {run}, attempt {attempt} cannot be read.", path=run)
        )
    found.pop("then", None)
    return found


async def artifact(campaign: Campaign, stage: str) -> dict[str, Any] | None:
    """The answer to `Artifact`. Raises LinkLost, FindingError."""
    view = view_of(campaign, stage)
    answer = await campaign.session.request("artifacts", paths=[view.output], files=FILES)
    manifest = answer["artifacts"].get(view.output)
    return {"path": view.output, **manifest} if manifest else None


async def results(campaign: Campaign, stage: str) -> dict[str, Any]:
    """The answer to `Results`. Raises LinkLost, FindingError."""
    view_of(campaign, stage)
    planned = campaign.plan.stages[stage]
    newest: dict[str, dict[str, Any]] = {}
    for run in sorted(campaign.survey.runs, key=lambda run: (run.get("ended") or 0.0, run["attempt"])):
        if run.get("stage") == stage and run.get("fingerprint"):
            newest[str(run["fingerprint"])] = run
    others = [name for name in reversed(newest) if name != planned.fingerprint]
    folder = planned.output.rpartition("/")[0]
    paths = {name: f"{folder}/{name}" for name in (planned.fingerprint, *others[:RESULTS])}
    found = (await campaign.session.request("artifacts", paths=list(paths.values())))["artifacts"]
    told = []
    for name, path in paths.items():
        if manifest := found.get(path):
            run = newest.get(name, {})
            told.append(
                {"fingerprint": name, "path": path, "planned": name == planned.fingerprint}
                | {key: run.get(key) for key in ("run", "attempt", "ended")}
                | {key: manifest.get(key) for key in ("inputs", "summary")}
            )
    return {"artifacts": told}


async def orphans(campaign: Campaign) -> dict[str, Any]:
    """The answer to `Orphans`. Raises LinkLost."""
    found = []
    for run in (await campaign.session.request("runs"))["runs"]:
        for finding in run.get("findings") or ():
            if finding.get("code") == ORPHANED:
                entry = {name: run.get(name) for name in ("stage", "run", "attempt", "campaign", "remark")}
                listed = finding.get("actual")
                found.append({**entry, "processes": listed if isinstance(listed, list) else []})
    return {"orphans": found}


async def locks(campaign: Campaign) -> dict[str, Any]:
    """The answer to `Locks`. Raises LinkLost, FindingError."""
    try:
        return await campaign.session.request("locks")
    except FindingError as problem:
        if problem.findings[0].code != "operation_unknown":
            raise
    message = "The agent on this host is older than this program: it does not tell who holds which lock."
    return {"locks": [], "problem": warning("locks_unreadable", message, path=campaign.session.name).to_json()}
