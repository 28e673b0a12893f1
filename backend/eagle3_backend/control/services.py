"""The endpoints of a campaign: each set of parameters of `serve` is a run of its own, so several may be at work.

Two of the same parameters are one run, and so one endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle3_backend.control import acts, forecasts
from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.snapshot import ServiceView, Started
from eagle3_backend.control.views import state_of
from eagle3_backend.engines import startup
from eagle3_backend.findings import FindingError, error

STAGE = "serve"


async def listed(campaign: Campaign, tunnels: bool) -> dict[str, Any]:
    """The answer to `Services`. Raises LinkLost, FindingError."""
    await campaign.fresh_survey()
    planned = campaign.plan.stages[STAGE].run
    found = [await _told(campaign, service, tunnels) for service in campaign.services]
    return {"services": sorted(found, key=lambda each: each["run"] != planned)}


async def _told(campaign: Campaign, service: ServiceView, tunnels: bool) -> dict[str, Any]:
    run, attempt = service.run, service.attempt
    spec = await forecasts.read_spec(campaign, run, attempt)
    parameters = spec.get("parameters") or {}
    told = {
        "run": run,
        "attempt": attempt,
        "state": service.state.value,
        "planned": service.planned,
        "ready": False,
        **{name: parameters.get(name) for name in ("engine", "layout", "depth", "options")},
        "drafter": f"{(spec.get('inputs') or {}).get('drafter', '')}/{parameters.get('layout', '')}",
    }
    try:
        content = await campaign.session.request("endpoint", run=run, attempt=attempt)
    except FindingError as problem:
        if problem.findings[0].code != "endpoint_absent":
            raise
        return told
    told |= {"ready": True, "host_port": int(content["port"]), "launch": startup.read(content.get("launch") or {})}
    return told | await _address(campaign, content) if tunnels else told


async def endpoint(campaign: Campaign, run: str) -> dict[str, Any]:
    """The answer to `Endpoint`. Raises LinkLost, FindingError."""
    if run:
        newest = campaign.survey.newest.get(run)
        if newest is None or newest.get("stage") != STAGE:
            raise _no_service(campaign, run)
        attempt = int(newest["attempt"])
    else:
        view, attempt = acts.attempt_of(campaign, STAGE, 0)
        run = view.run
    content = await campaign.session.request("endpoint", run=run, attempt=attempt)
    return {**await _address(campaign, content), "host_port": int(content["port"]), "run": run}


async def _address(campaign: Campaign, content: dict[str, Any]) -> dict[str, Any]:
    port = await campaign.session.tunnel(int(content["port"]))
    return {
        "base_url": f"http://127.0.0.1:{port}/v1",
        "api_key": content.get("api_key"),
        "port": port,
        "model": content.get("served_model"),
        "engine": content.get("engine"),
    }


async def swap(
    campaign: Campaign, cache_dir: Path, settings: Sequence[str], run: str, accept: Sequence[str], asked: float
) -> Started:
    """The answer to `Swap`. Raises LinkLost, FindingError.

    One request tells the host of both: it has the old one end and starts the new one, whatever becomes of the laptop.
    """
    await campaign.fresh_survey()
    before = campaign.profile
    campaign.replan(before.with_settings(list(settings)))
    try:
        old = _replaced(campaign, run, settings)
        planned = state_of(campaign.survey.newest.get(campaign.plan.stages[STAGE].run))
        if planned is not None and planned.is_active:
            # Asked for again, or it serves beside the other one already: that one alone has to end.
            try:
                await acts.stop(campaign, STAGE, old.run)
            except FindingError as problem:
                if problem.findings[0].code != "stage_not_running":
                    raise
        after = {"run": old.run, "attempt": old.attempt, "port": await _port(campaign, old)}
        return await acts.start(
            campaign, cache_dir, STAGE, only=False, restart=False, accept=accept, after=after, asked=asked
        )
    except BaseException:
        campaign.replan(before)
        campaign.look(artifacts=True)
        raise


def _replaced(campaign: Campaign, run: str, settings: Sequence[str]) -> ServiceView:
    """The endpoint whose place the planned one takes. Raises FindingError unless it is told, or one alone."""
    services = campaign.services
    others = [service for service in services if not service.planned]
    found = [service for service in services if service.run == run] if run else others or list(services)
    if len(found) != 1:
        raise _no_service(campaign, run)
    if found[0].planned:
        raise FindingError(
            error(
                "service_unchanged",
                "The new settings are those that the endpoint was started with: there is nothing to swap.",
                path=found[0].run,
                actual=list(settings),
                fix="Name what is to change, such as --set serve.layout=nested.",
            )
        )
    return found[0]


async def _port(campaign: Campaign, service: ServiceView) -> int | None:
    """The host's port of an endpoint that is ready: the next one listens there, too, so that tunnels reach it."""
    try:
        return int((await campaign.session.request("endpoint", run=service.run, attempt=service.attempt))["port"])
    except FindingError as problem:
        if problem.findings[0].code != "endpoint_absent":
            raise
        return None


def _no_service(campaign: Campaign, run: str) -> FindingError:
    names = [service.run for service in campaign.services]
    return FindingError(
        error(
            "service_absent" if run or not names else "service_ambiguous",
            f"No endpoint {run} is at work."
            if run
            else "No endpoint is at work."
            if not names
            else "Several endpoints are at work: which one is meant?",
            path=STAGE,
            expected=names,
            actual=run or None,
            fix="Start one: eagle3-tui serve" if not names else "Name one of them by its run.",
        )
    )
