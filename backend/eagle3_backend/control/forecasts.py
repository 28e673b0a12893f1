"""What a chain will cost, from the prompt files on the laptop and from what this host did before."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.views import state_of
from eagle3_backend.findings import Finding, FindingError
from eagle3_backend.pipeline import long_context
from eagle3_backend.pipeline.environments import SETS, marker_of
from eagle3_backend.pipeline.forecast import (
    DEMO_MODEL,
    DEMO_SHAPE,
    Amounts,
    Forecast,
    History,
    Shape,
    disk_findings,
    forecast,
    work,
)
from eagle3_backend.pipeline.hub_sets import is_hub
from eagle3_backend.pipeline.plan import PlannedStage
from eagle3_backend.states import RunState

_ASKED = ("user", "human")


async def of_chain(campaign: Campaign, stages: Sequence[PlannedStage]) -> Forecast:
    """Forecast of these stages on the campaign's host. Raises LinkLost."""
    return forecast(
        [planned.name for planned in stages],
        _parameters(campaign),
        await amounts_of(campaign),
        _shape(campaign),
        await _history(campaign, stages),
        campaign.profile.host.price_per_hour,
        await _builds(campaign),
    )


async def disk(campaign: Campaign, expected: Forecast) -> tuple[Finding, ...]:
    """`disk_space_insufficient` when the chain will not fit into the workspace. Raises LinkLost."""
    workspace = campaign.plan.workspace
    mounts = (await campaign.session.request("probe", what="disk", paths=[workspace]))["mounts"]
    return disk_findings(expected.bytes, workspace, {entry["mount"]: entry["free_bytes"] for entry in mounts})


async def _builds(campaign: Campaign) -> list[str]:
    """The requirement sets that `setup` will have to build there. Raises LinkLost."""
    found = []
    for name, entry in campaign.profile.environments.items():
        if entry.set in SETS:
            marker = marker_of(name, entry.set, campaign.plan.workspace)
            if not (await campaign.session.request("probe", what="path", path=marker))["exists"]:
                found.append(entry.set)
    return found


async def works_of(campaign: Campaign) -> dict[str, float | None]:
    """How much each stage has to do, where it is known; it goes into the specs, so that later forecasts can scale by
    it."""
    parameters, amounts = _parameters(campaign), await amounts_of(campaign)
    return {name: work(name, parameters, amounts) for name in campaign.plan.stages}


async def amounts_of(campaign: Campaign) -> Amounts | None:
    """Turns and characters of the prompts that the campaign will use; None while a data set of a hub is not read."""
    prompts: Any = campaign.profile.parameters["prompts"]
    if any(map(is_hub, prompts.files)):
        return _read_amounts(campaign)
    # Away from the loop, which has pings to answer: a prompt file may hold hundreds of megabytes.
    counts = [await asyncio.to_thread(_count, path, path.stat().st_mtime_ns) for path in campaign.training_files]
    rows = [row for count in counts for row in count]
    if long_context.NAME in prompts.files:
        rows += map(_row, long_context.rows())
    turns, characters = sum(row[0] for row in rows), sum(row[1] for row in rows)
    if prompts.limit and len(rows) > prompts.limit + prompts.holdout:
        share = (prompts.limit + prompts.holdout) / len(rows)
        return Amounts(round(turns * share), round(characters * share))
    return Amounts(turns, characters)


def _read_amounts(campaign: Campaign) -> Amounts | None:
    """As the prompts stage has counted what it read."""
    manifest = campaign.survey.artifacts.get(campaign.plan.stages["prompts"].output) or {}
    summary = manifest.get("summary") or {}
    turns, characters = summary.get("turns"), summary.get("characters")
    return Amounts(turns, characters) if isinstance(turns, int) and isinstance(characters, int) else None


@lru_cache(maxsize=32)
def _count(path: Path, modified: int) -> tuple[tuple[int, int], ...]:
    """(turns, characters) of each row of a prompt file; the stage itself reads it strictly."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    except (ValueError, RecursionError):
        rows = text.splitlines()
    return tuple(_row(row) for row in rows if row)


def _row(row: Any) -> tuple[int, int]:
    if isinstance(row, dict):
        for key in ("turns", "messages", "conversations", "conversation"):
            if isinstance(row.get(key), list):
                texts = [text for text in _texts(row[key]) if text]
                return max(1, len(texts)), sum(map(len, texts))
    return 1, len(row) if isinstance(row, str) else len(json.dumps(row, ensure_ascii=False))


def _texts(entries: Iterable[Any]) -> Iterable[str]:
    """What the user says."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict) and (entry.get("role") or entry.get("from")) in _ASKED:
            yield str(entry.get("content") or entry.get("value") or "")


def _parameters(campaign: Campaign) -> dict[str, dict[str, Any]]:
    return {name: planned.parameters for name, planned in campaign.plan.stages.items()}


def _shape(campaign: Campaign) -> Shape | None:
    """Layers and width: from the target's facts, else known for the demo."""
    manifest = campaign.survey.artifacts.get(campaign.plan.stages["target"].output) or {}
    summary = manifest.get("summary") or {}
    if isinstance(summary.get("hidden_size"), int):
        aux = campaign.plan.stages["extract"].parameters["aux_layers"] or summary.get("aux_layers") or (0, 0, 0)
        return Shape(slots=len(aux) + 1, hidden_size=summary["hidden_size"])
    return DEMO_SHAPE if campaign.profile.target.model == DEMO_MODEL else None


async def _history(campaign: Campaign, stages: Sequence[PlannedStage]) -> dict[str, History]:
    """For each stage its last first attempt that ended well, whatever its parameters were."""
    found: dict[str, History] = {}
    for planned in stages:
        runs = [
            run
            for run in campaign.survey.runs
            if run["stage"] == planned.name and run["attempt"] == 1 and state_of(run) is RunState.DONE
        ]
        if runs:
            run = max(runs, key=lambda run: run["ended"] or 0.0)
            amount = (await read_spec(campaign, run["run"], 1)).get("work")
            if amount and run["ended"] and run["started"]:
                found[planned.name] = History(float(run["ended"]) - float(run["started"]), float(amount))
    return found


async def read_spec(campaign: Campaign, run: str, attempt: int) -> dict[str, Any]:
    """The spec of an attempt as its host has it; {} when it cannot be read. Raises LinkLost."""
    data, size = b"", 1
    try:
        while len(data) < size:
            answer = await campaign.session.request(
                "read", run=run, attempt=attempt, file="spec.json", offset=len(data), length=512 * 1024
            )
            block, size = base64.b64decode(answer["data"]), int(answer["size"])
            if not block:
                break
            data += block
        spec = json.loads(data)
    except (FindingError, ValueError):
        return {}
    return spec if isinstance(spec, dict) else {}
