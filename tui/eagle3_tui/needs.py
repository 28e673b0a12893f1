"""What waits for a person, and what the campaign costs: one line on top of the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagle3_backend.control.alerts import DISK_LEFT
from eagle3_backend.control.snapshot import Snapshot, StageView
from eagle3_backend.findings import Severity
from eagle3_backend.states import LinkState, RunState
from eagle3_tui import rules
from eagle3_tui.text import clean, size, span

LAST = "bench"
"""The stage to whose end the forecast goes, as a start does."""
LATE_BEAT = 60.0
"""Seconds without a heartbeat after which a stage that is said to run is looked at."""


@dataclass(frozen=True)
class Need:
    """Something that does not go on by itself: the worst comes first."""

    words: str
    role: str


def needs(snapshot: Snapshot, now: float) -> tuple[Need, ...]:
    """What waits for the operator; ``now`` is laptop monotonic seconds."""
    if not snapshot.version or not snapshot.stages:
        return ()
    found = [*_of_link(snapshot, now), *_of_runs(snapshot), *_of_disk(snapshot)]
    idle = rules.active(snapshot) is None and not any(view.state is RunState.UNKNOWN for view in snapshot.stages)
    if idle and not found and not rules.no_link(snapshot):
        found += _next_step(snapshot)
    return tuple(found)


def _of_link(snapshot: Snapshot, now: float) -> list[Need]:
    host = snapshot.host
    name = clean(host.name, 32)
    if host.link is LinkState.KEY_CHANGED:
        return [Need(f"the host key of {name} has changed", "bad")]
    if host.offered_key:
        return [Need(f"{name} wants its host key checked: r asks", "warn")]
    if host.link is LinkState.DENIED:
        return [Need(f"{name} lets nobody in: check user and key", "bad")]
    if host.link is LinkState.RECONNECTING and now - host.since > 120:
        return [Need(f"no link to {name} for {span(now - host.since)}", "warn")]
    return []


def _of_runs(snapshot: Snapshot) -> list[Need]:
    found = []
    for view in snapshot.stages:
        name = clean(view.name, 32)
        ended_badly = view.state in (RunState.FAILED, RunState.CRASHED, RunState.LOST)
        if ended_badly and not view.fresh:
            found.append(Need(f"{name} {view.state.value}: enter shows why, u resumes", "bad"))
        elif view.state is RunState.STOPPED and not view.fresh and not _is_service(view):
            found.append(Need(f"{name} is stopped: u resumes", "warn"))
        elif view.state is RunState.RUNNING and (view.heartbeat_age or 0) > LATE_BEAT:
            found.append(Need(f"{name} shows no sign of life for {span(view.heartbeat_age)}", "warn"))
        if view.state.is_active:
            errors = [finding for finding in view.findings if finding.severity is Severity.ERROR]
            found += [Need(f"{name}: {clean(finding.code, 60)}", "bad") for finding in errors[-1:]]
    return sorted(found, key=lambda need: need.role != "bad")


def _is_service(view: StageView) -> bool:
    return view.name == "serve"


def _of_disk(snapshot: Snapshot) -> list[Need]:
    machine = snapshot.host.machine
    if not machine.disk_total or machine.disk_free is None or machine.disk_free > DISK_LEFT * machine.disk_total:
        return []
    return [Need(f"only {size(machine.disk_free)} of disk left", "bad")]


def _next_step(snapshot: Snapshot) -> list[Need]:
    chain = snapshot.needed(LAST) if snapshot.stage(LAST) is not None else ()
    views = [view for name in chain if (view := snapshot.stage(name)) is not None]
    waiting = [view for view in views if not view.fresh or view.outdated_by]
    if waiting:
        return [Need(f"nothing runs: s starts {clean(waiting[0].name, 32)} and what follows", "warn")]
    return [Need("the campaign is done: v, then s serves the drafter", "good")] if views else []


@dataclass(frozen=True)
class Remaining:
    """Seconds to the end of the chain; not ``whole`` where the time of a stage is unknown, so that it takes longer."""

    seconds: float
    whole: bool


def remaining(forecast: Mapping[str, Any], snapshot: Snapshot) -> Remaining:
    """What is forecast, with the time that the stage at work still takes itself."""
    total, whole = 0.0, True
    for entry in forecast.get("stages", ()):
        view = snapshot.stage(entry["stage"])
        seconds = entry["seconds"]
        if view is not None and view.state.is_active and view.eta is not None:
            seconds = view.eta
        elif view is not None and view.state.is_active and view.elapsed is not None and seconds is not None:
            seconds = max(0.0, seconds - view.elapsed)
        whole = whole and seconds is not None
        total += seconds or 0.0
    return Remaining(total, whole)


def cost_words(forecast: Mapping[str, Any] | None, snapshot: Snapshot) -> list[str]:
    """Price, what was spent, and what is to come in time, money and disk; as far as it is known."""
    price = snapshot.price_per_hour
    told = [f"{price:.2f}/h", f"spent {price * snapshot.spent_seconds / 3600:.2f}"] if price else []
    if forecast is None or not forecast.get("stages"):
        return told
    left = remaining(forecast, snapshot)
    more = "" if left.whole else "over "
    coming = [f"{more}{span(left.seconds)}" if left.seconds else "time unknown"]
    if price and left.seconds:
        coming.append(f"{more}{price * left.seconds / 3600:.2f}")
    if disk := forecast.get("total", {}).get("bytes"):
        coming.append(size(disk))
    return [*told, "to go: " + ", ".join(coming)]
