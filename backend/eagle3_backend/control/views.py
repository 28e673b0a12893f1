"""Where every stage of a campaign stands, from what the host said last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eagle3_backend.control.fold import RunFold
from eagle3_backend.control.snapshot import StageView
from eagle3_backend.findings import Finding
from eagle3_backend.pipeline.plan import CampaignPlan
from eagle3_backend.pipeline.stages import STAGES, Stage
from eagle3_backend.states import RunState

PARAMETERS = "parameters"
"""In ``outdated_by``: the stage's own parameters changed."""


@dataclass(frozen=True)
class Survey:
    """What a host answered: its runs of this campaign and the manifests at the planned paths.

    ``newest`` is the newest attempt of each run, ``older`` the newest whole artifact that a stage made under another
    fingerprint, ``at`` laptop monotonic seconds.
    """

    runs: tuple[dict[str, Any], ...] = ()
    artifacts: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)
    older: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    at: float = 0.0

    @property
    def newest(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for run in self.runs:
            if run["run"] not in found or found[run["run"]]["attempt"] < run["attempt"]:
                found[run["run"]] = run
        return found

    def fresh(self, plan: CampaignPlan) -> frozenset[str]:
        """Stages whose artifact is there and whole."""
        return frozenset(name for name, planned in plan.stages.items() if self.artifacts.get(planned.output))


def state_of(run: Mapping[str, Any] | None) -> RunState | None:
    """The state that a host gave for an attempt; a word that this laptop does not know is unknown."""
    if run is None:
        return None
    try:
        return RunState(run["state"])
    except ValueError:
        return RunState.UNKNOWN


def older_outputs(plan: CampaignPlan, runs: tuple[dict[str, Any], ...]) -> dict[str, str]:
    """For each stage the directory that its last finished run under another fingerprint made."""
    found: dict[str, tuple[float, str]] = {}
    for run in runs:
        planned = plan.stages.get(run["stage"] or "")
        if planned is None or state_of(run) is not RunState.DONE or run["fingerprint"] == planned.fingerprint:
            continue
        path = f"{plan.workspace}/{plan.campaign}/{planned.name}/{run['fingerprint']}"
        found[planned.name] = max(found.get(planned.name, (0.0, "")), (run.get("ended") or 0.0, path))
    return {name: path for name, (_, path) in found.items()}


def queued_behind(plan: CampaignPlan, newest: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Stages that a chain on the host will start by itself, each with the stage that is at work before it."""
    queued: dict[str, str] = {}
    for planned in plan.stages.values():
        run = newest.get(planned.run)
        state = state_of(run)
        if run is not None and state is not None and state.is_active:
            queued.update({name: planned.name for name in run.get("then") or () if name in plan.stages})
    return queued


def stage_views(
    plan: CampaignPlan,
    survey: Survey,
    folds: Mapping[tuple[str, int], RunFold],
    *,
    live: bool,
    now: float,
) -> tuple[StageView, ...]:
    """One view a stage, in pipeline order. ``now`` is laptop monotonic seconds; without a link nothing ages."""
    newest = survey.newest
    fresh = survey.fresh(plan)
    queued = queued_behind(plan, newest)
    return tuple(
        _view(stage, plan, survey, newest.get(plan.stages[stage.name].run), fresh, queued, folds, live, now)
        for stage in STAGES.values()
    )


def _view(
    stage: Stage,
    plan: CampaignPlan,
    survey: Survey,
    run: dict[str, Any] | None,
    fresh: frozenset[str],
    queued: Mapping[str, str],
    folds: Mapping[tuple[str, int], RunFold],
    live: bool,
    now: float,
) -> StageView:
    planned = plan.stages[stage.name]
    manifest = survey.artifacts.get(planned.output) or {}
    attempt = int(run["attempt"]) if run else 0
    fold = folds.get((planned.run, attempt)) or RunFold()
    blocked_by = tuple(name for name in dict.fromkeys((*stage.after, *planned.reads)) if name not in fresh)
    old = survey.older.get(stage.name)
    state, remark = _state(stage, run, stage.name in fresh, queued.get(stage.name), blocked_by, old is not None)
    if not survey.at:
        state = RunState.UNKNOWN  # no word from the host yet
    outdated_by: tuple[str, ...] = ()
    if old is not None and stage.name not in fresh:
        outdated_by = plan.outdated_by(stage.name, old.get("inputs") or {}) or (PARAMETERS,)
    running = state in (RunState.RUNNING, RunState.STOPPING)
    lost = not live and state.is_active
    return StageView(
        name=stage.name,
        title=stage.title,
        state=RunState.UNKNOWN if lost else state,
        last_state=state if lost else None,
        fresh=stage.name in fresh,
        outdated_by=outdated_by,
        blocked_by=() if stage.name in fresh else blocked_by,
        run=planned.run,
        attempt=attempt,
        done=fold.done,
        total=fold.total,
        unit=fold.unit,
        rate=fold.rate,
        eta=_eta(fold) if running and live else None,
        elapsed=_elapsed(run, now - survey.at if running and live else 0.0),
        heartbeat_age=run.get("heartbeat_age") if run and running else None,
        remark=remark,
        findings=_findings(run, fold),
        summary=dict(manifest.get("summary") or (old or {}).get("summary") or {}),
        as_of=None if live or not survey.at else survey.at,
        metrics=fold.metrics,
        launch=fold.launch,
        output=planned.output,
        needs=plan.needed(stage.name),
    )


def _state(
    stage: Stage,
    run: Mapping[str, Any] | None,
    fresh: bool,
    queued_behind: str | None,
    blocked_by: tuple[str, ...],
    was_done: bool,
) -> tuple[RunState, str]:
    state = state_of(run)
    remark = str(run.get("remark") or "") if run else ""
    if state is not None and state.is_active:
        return state, remark
    if fresh:
        return RunState.DONE, ""
    if queued_behind is not None:
        return RunState.QUEUED, f"behind {queued_behind}"
    if state is RunState.DONE and stage.makes is None:
        return RunState.STOPPED, remark
    if state is not None and state is not RunState.DONE:
        return state, remark
    if was_done:
        return RunState.DONE, ""
    gone = "its artifact is gone" if state is RunState.DONE else ""
    return (RunState.BLOCKED if blocked_by else RunState.READY), gone


def _eta(fold: RunFold) -> float | None:
    if not fold.rate or fold.total is None or fold.done is None:
        return None
    return max(0.0, (fold.total - fold.done) / fold.rate)


def _elapsed(run: Mapping[str, Any] | None, since_survey: float) -> float | None:
    """Seconds by the host's clock, and for a run that goes on those that passed since the host said so."""
    if run is None:
        return None
    if run.get("elapsed") is not None:
        return float(run["elapsed"]) + since_survey
    if run.get("started") is None or run.get("ended") is None:
        return None
    return max(0.0, float(run["ended"]) - float(run["started"]))


def spent(survey: Survey) -> float:
    """Seconds in which an attempt of this campaign was at work, by the host's clock: what runs together counts once."""
    spans = []
    for run in survey.runs:
        seconds = _elapsed(run, 0.0)
        if run.get("started") is not None and seconds is not None:
            spans.append((float(run["started"]), float(run["started"]) + seconds))
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _findings(run: Mapping[str, Any] | None, fold: RunFold) -> tuple[Finding, ...]:
    """Those of the journal, and what the host says of the attempt beyond it."""
    found = list(fold.findings)
    for data in (run.get("findings") or ()) if run else ():
        finding = Finding.from_json(data)
        if finding not in found:
            found.append(finding)
    return tuple(found)
