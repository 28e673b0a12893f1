"""A running server against a drafter's directory, without a pipeline: its answers are replayed on the profile's host.

The host needs the train environment and both directories, and no stage but the replay itself runs there. What the
laptop has measured travels as a file; the run is as durable as any other, under a campaign name of its own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eagle3_backend.control import acts
from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.chain import python_of
from eagle3_backend.drafter.inspection import Inspection
from eagle3_backend.findings import Finding, FindingError, Severity, error
from eagle3_backend.pipeline.fingerprint import LENGTH
from eagle3_backend.pipeline.plan import PlannedStage, spec_of
from eagle3_backend.states import RunState

CAMPAIGN, STAGE = "endpoint", "diagnose"
LOOK_SECONDS = 0.5
MAX_JOURNAL = 4 << 20


async def diagnose(campaign: Campaign, record: Mapping[str, Any], drafter: str, target: str) -> dict[str, Any]:
    """The answer to `Diagnose`. Raises LinkLost, FindingError."""
    session = campaign.session
    await campaign.fresh_survey()
    python = await _python(campaign)
    for path in (drafter, target):
        found = Inspection.from_json(await session.request("inspect", path=path))
        if found.config is None:
            raise FindingError(*found.findings)
    data = json.dumps(record, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requests.json"
        file.write_bytes(data)
        path = await session.upload(file, digest)
    planned = _planned(campaign, {"requests": path, "drafter": drafter, "target": target}, digest)
    ground = acts.ground_of(campaign)
    spec = spec_of(planned, python=python, payload=ground.payload, input_fingerprints={})
    spec = {**spec, "then": [], "work": 1.0}
    await session.request("start", spec=spec, secrets={}, request=uuid.uuid4().hex, restart=False, attempt=None)
    return await _outcome(campaign, planned)


def _planned(campaign: Campaign, inputs: Mapping[str, str], digest: str) -> PlannedStage:
    parameters = asdict(campaign.profile.parameters[STAGE])
    text = json.dumps([digest, inputs["drafter"], inputs["target"], parameters], sort_keys=True, default=str)
    name = hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
    return PlannedStage(
        name=STAGE,
        reads=(),
        fingerprint=name,
        run=f"{CAMPAIGN}-{STAGE}-{name}",
        output=f"{campaign.plan.workspace}/{CAMPAIGN}/{STAGE}/{name}",
        inputs=dict(inputs),
        parameters=parameters,
        environment="train",
    )


async def _python(campaign: Campaign) -> str:
    """The train environment's interpreter. Raises FindingError while it is not there."""
    ground = acts.ground_of(campaign)
    python = python_of("train", campaign.profile.parameters, ground, campaign.plan.workspace)
    probe = await campaign.session.request("probe", what="path", path=python)
    if not probe["executable"]:
        raise FindingError(
            error(
                "environment_missing",
                f"A replay needs the train environment, which is not there: {python}.",
                path="environments.train",
                actual=python,
                fix="eagle3-tui run --through setup builds it; or name one that is there in the profile.",
            )
        )
    return python


async def _outcome(campaign: Campaign, planned: PlannedStage) -> dict[str, Any]:
    """The summary of the replay, and what it found, once it has ended. Raises FindingError when it failed."""
    session = campaign.session
    while True:
        manifest = (await session.request("artifacts", paths=[planned.output]))["artifacts"].get(planned.output)
        runs = [run for run in (await session.request("runs"))["runs"] if run["run"] == planned.run]
        newest = max(runs, key=lambda run: run["attempt"]) if runs else None
        state = RunState(newest["state"]) if newest else None
        if newest is not None and state is not None and (manifest or state.is_ended):
            break
        await asyncio.sleep(LOOK_SECONDS)
    findings = await _findings(campaign, planned.run, int(newest["attempt"]))
    if not manifest:
        raise FindingError(*(findings or [_ended_badly(planned.run, newest)]))
    return {
        **manifest["summary"],
        "run": planned.run,
        "report": f"{planned.output}/diagnosis.json",
        "findings": [finding.to_json() for finding in findings],
    }


async def _findings(campaign: Campaign, run: str, attempt: int) -> Sequence[Finding]:
    """Those that the run wrote to its journal, in order."""
    data = b""
    while len(data) < MAX_JOURNAL:
        answer = await campaign.session.request(
            "read", run=run, attempt=attempt, file="journal.jsonl", offset=len(data), length=512 * 1024
        )
        block = base64.b64decode(answer["data"])
        if not block:
            break
        data += block
    found = []
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            entry = json.loads(line)
            if entry.get("kind") == "finding":
                found.append(Finding.from_json(entry))
        except (ValueError, KeyError, AttributeError):
            continue
    return found


def _ended_badly(run: str, described: Mapping[str, Any]) -> Finding:
    return Finding(
        "replay_failed",
        Severity.ERROR,
        f"The replay ended as {described['state']} ({described.get('remark') or 'no remark'}).",
        run,
    )
