"""Questions about a campaign, answered as plain JSON values (and the raw bytes of logs)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eagle3_backend.control import acts, commands, forecasts, launches
from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.chain import build_spec, stages_to_run
from eagle3_backend.control.script import render
from eagle3_backend.control.snapshot import StageView
from eagle3_backend.engines.plan import Plan, explained, shell_line
from eagle3_backend.runs.series import downsample
from eagle3_backend.states import LinkState

SKEW_SECONDS = 2.0
"""A difference of clocks beyond this is shown."""


def status(campaign: Campaign) -> dict[str, Any]:
    """The answer to `Status`."""
    picture = campaign.picture(0)
    return {
        "campaign": picture.campaign,
        "profile": picture.profile,
        "workspace": picture.workspace,
        "host": _host(campaign),
        "stages": [_stage(view) for view in picture.stages],
        "services": [{**asdict(service), "state": service.state.value} for service in picture.services],
        "findings": [finding.to_json() for finding in picture.findings],
    }


def _host(campaign: Campaign) -> dict[str, Any]:
    view = campaign.picture(0).host
    return {
        "name": view.name,
        "link": view.link.value,
        "latency": view.latency,
        "skew": view.skew,
        "problem": view.problem.to_json() if view.problem else None,
        "machine": asdict(view.machine),
    }


def _stage(view: StageView) -> dict[str, Any]:
    values = {name: getattr(view, name) for name in view.__dataclass_fields__}
    return {
        **values,
        "state": view.state.value,
        "last_state": view.last_state.value if view.last_state else None,
        "as_of": None if view.as_of is None else round(time.monotonic() - view.as_of, 1),
        "findings": [finding.to_json() for finding in view.findings],
        "metrics": {name: _number(value) for name, value in view.metrics.items()},
    }


def metrics(campaign: Campaign, command: commands.Metrics) -> dict[str, Any]:
    """The answer to `Metrics`, from the laptop's copy."""
    run, attempt = command.run, command.attempt
    if not run:
        view, attempt = acts.attempt_of(campaign, command.stage, command.attempt)
        run = view.run
    assert campaign.following is not None
    key = campaign.following.key(run, attempt)
    series = campaign.store.series(key)
    chosen = {name: points for name, points in series.items() if not command.names or name in command.names}
    return {
        "stage": command.stage,
        "run": run,
        "attempt": attempt,
        "series": {
            name: [[step, _number(value)] for step, value in downsample(points, command.columns)]
            for name, points in chosen.items()
        },
        "clock": [list(entry) for entry in campaign.store.clock(key)],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


async def dry_run(campaign: Campaign, cache_dir: Path, through: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The answer to `DryRun`. Raises LinkLost, FindingError."""
    await campaign.fresh_survey()
    fresh = campaign.survey.fresh(campaign.plan)
    stages = stages_to_run(campaign.plan, through, fresh, also=also)
    ground, works = acts.ground_of(campaign), await forecasts.works_of(campaign)
    specs = [
        build_spec(planned, campaign.plan, campaign.profile.parameters, ground, (), works[planned.name])
        for planned in stages
    ]
    plans = launches.plans_of(campaign, specs)
    return {
        "script": render(
            campaign.plan.campaign,
            campaign.session.name,
            campaign.plan.workspace,
            campaign.session.payload_directory,
            specs,
            plans,
        ),
        "launches": {stage: _launch(plan) for stage, plan in plans.items()},
        "stages": specs,
        "fresh": [name for name in campaign.plan.needed(through, *also) if name in fresh],
        "findings": [finding.to_json() for finding in await acts.preflight(campaign, cache_dir, stages, specs)],
    }


def _launch(plan: Plan) -> dict[str, Any]:
    rows = [{"name": name, "value": value, "reason": reason} for name, value, reason in explained(plan)]
    return {"engine": plan["engine"], "line": shell_line(plan), "reasons": rows}


async def forecast(campaign: Campaign, through: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The answer to `Forecast`. Raises LinkLost, FindingError."""
    await campaign.fresh_survey()
    stages = stages_to_run(campaign.plan, through, campaign.survey.fresh(campaign.plan), also=also)
    expected = (await forecasts.of_chain(campaign, stages)).to_json()
    return {"stages": expected["stages"], "total": {name: expected[name] for name in ("seconds", "bytes", "cost")}}


async def doctor(campaign: Campaign) -> dict[str, Any]:
    """The answer to `Doctor`: what the laptop sees of the link, then what the host says of itself. Raises LinkLost."""
    session = campaign.session
    checks = [_check("link", "gateway", "ok", f"protocol {session.hello.get('protocol')}, {session.name}")]
    if session.latency is not None:
        checks.append(_check("link", "round trip", "ok", f"{session.latency * 1000:.0f} ms"))
    skew = session.skew or 0.0
    level = "warn" if abs(skew) > SKEW_SECONDS else "ok"
    checks.append(_check("link", "clock", level, f"the host is {skew:+.1f} s off", "Set the host's clock by NTP."))
    if session.state is LinkState.STALE:
        checks.append(_check("link", "silence", "warn", "the host has not answered the last ping"))
    answer = await session.request("doctor")
    return {"checks": [*checks, *map(_of_host, answer["checks"])]}


def _of_host(check: dict[str, Any]) -> dict[str, Any]:
    """A check of the agent, whose levels are those of its finding."""
    level = {"warning": "warn", "error": "fail"}.get(check["level"], "ok")
    fix = (check.get("finding") or {}).get("fix", "")
    return _check(str(check["area"]), str(check["check"]), level, str(check["text"]), fix)


def _check(area: str, name: str, level: str, message: str, fix: str = "") -> dict[str, Any]:
    return {"area": area, "name": name, "level": level, "message": message, "fix": fix if level != "ok" else ""}
