"""What the engine of a campaign takes, as installed on its host."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from eagle3_backend.control.campaign import Campaign
from eagle3_backend.engines.options import Surface, check_installation, check_options, surface_key
from eagle3_backend.engines.plan import Plan, options_of
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.pipeline import environments
from eagle3_backend.serving.surfaces import SurfaceCache, packaged

SECONDS = 330.0
"""Longest wait for a host: engines are imported for this."""


async def options(campaign: Campaign, cache_dir: Path, engine: str) -> dict[str, Any]:
    """The answer to `EngineOptions`. Raises LinkLost, and FindingError where the engine cannot even be found."""
    cache = SurfaceCache(cache_dir)
    python = _python(campaign, engine)
    told = await campaign.session.request(
        "engine_options", timeout=SECONDS, python=python, engine=engine, known=cache.keys(engine)
    )
    identity = told["identity"]
    findings = check_installation(identity)
    if any(finding.code == "engine_missing" for finding in findings):
        raise FindingError(*findings)
    key, data = surface_key(identity), told["surface"]
    surface = cache.put(key, data) if data else cache.get(key)
    if surface is None or not surface.flags:
        surface = packaged(engine)
        findings.append(_unread(surface, identity, data))
    return {
        "engine": engine,
        "python": python,
        "identity": identity,
        "packaged": surface.packaged,
        "cached": data is None,
        "version": surface.version,
        "flags": [asdict(option) for option in surface.flags],
        "fields": [asdict(option) for option in surface.fields],
        "findings": [finding.to_json() for finding in findings],
    }


async def check_launch(campaign: Campaign, cache_dir: Path, plan: Plan) -> list[Finding]:
    """A launch plan against the options of its engine as installed; of an engine that did not tell them, against the
    packaged ones. Raises as `options` does."""
    answer = await options(campaign, cache_dir, plan["engine"])
    told = [Finding.from_json(entry) for entry in answer["findings"]]
    shipped = packaged(plan["engine"])
    return [*told, *check_options(surface_of(answer), options_of(plan["argv"]), others=[shipped])]


def surface_of(answer: dict[str, Any]) -> Surface:
    """The surface behind an answer to `EngineOptions`."""
    return Surface.from_json({**answer, "installed": answer["identity"]["installed"]}, answer["packaged"])


def _python(campaign: Campaign, engine: str) -> str:
    entry = campaign.profile.environments.get(engine)
    if entry is None:
        raise FindingError(
            error(
                "environment_missing",
                f"The profile names no environment '{engine}'.",
                path=f"environments.{engine}",
                fix=f'Add [environments.{engine}] with python = "/path/bin/python", or with set.',
            )
        )
    return environments.python_of(engine, entry.model_dump(), campaign.plan.workspace)


def _unread(surface: Surface, identity: dict[str, Any], data: Any) -> Finding:
    faults = (data or {}).get("faults") or [{"trace": ""}]
    last = str(faults[0]["trace"]).strip().splitlines()[-1:]
    return warning(
        "engine_options_packaged",
        f"The installed {surface.engine} {identity['version']} did not tell its options; those of {surface.version} "
        f"are shown in their place. {' '.join(last)[:300]}".rstrip(),
        path=f"environments.{surface.engine}",
        expected=identity["version"],
        actual=surface.version,
        fix="A launch checked against them may still be refused by the engine.",
    )
