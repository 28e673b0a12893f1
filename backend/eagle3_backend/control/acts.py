"""Start, stop and resume: what an operator may ask of a campaign, and what stands against it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eagle3_backend.control import forecasts, launches
from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.chain import Ground, build_chain, demote, stages_to_run
from eagle3_backend.control.snapshot import Outcome, StageView, Started
from eagle3_backend.control.views import queued_behind, state_of
from eagle3_backend.findings import Finding, FindingError, Severity, error
from eagle3_backend.pipeline.plan import PlannedStage
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.states import RESUMABLE, RunState

SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Names of the laptop's environment whose values go to the stages' environment, and nowhere else."""

OF_MEMORY = ("gpu_memory_taken",)
"""What stands against a launch only as long as the attempt is there whose place it takes."""


def ground_of(campaign: Campaign) -> Ground:
    session = campaign.session
    return Ground(session.python, session.payload, campaign.machine, campaign.profile.host.pcie_only)


async def start(
    campaign: Campaign,
    cache_dir: Path,
    through: str,
    only: bool,
    restart: bool,
    accept: Sequence[str],
    also: Sequence[str] = (),
    after: Mapping[str, Any] | None = None,
    asked: float | None = None,
) -> Started:
    """Send the chain of all that is not fresh. Raises FindingError with everything that stands against it.

    ``after`` {"run", "attempt"} is the attempt whose place its last stage takes, with the GPUs that it holds: the host
    asks it to end once all before that stage is done, and starts the stage then. ``asked`` is when the operator gave
    the word, monotonic seconds of this laptop.
    """
    await campaign.fresh_survey()
    fresh = campaign.survey.fresh(campaign.plan)
    stages = stages_to_run(campaign.plan, through, fresh - {through} if restart else fresh, only=only, also=also)
    running = {planned.name for planned in stages}
    fresh_names = tuple(name for name in campaign.plan.needed(through, *also) if name not in running)
    if not stages:
        return Started((), fresh_names)
    if restart and stages[0].name != through:
        raise FindingError(
            error(
                "stage_blocked",
                f"{through} cannot begin anew while {stages[0].name} before it is not fresh.",
                path=through,
                fix=f"eagle3-tui run --through {stages[0].name}",
            )
        )
    active = _active(campaign, stages)
    if active:
        runs = tuple(planned.run for planned in active)
        names = tuple(planned.name for planned in active)
        return Started(runs, fresh_names, True, names[-1] == through or through in names, names)
    works = await forecasts.works_of(campaign)
    ground = replace(ground_of(campaign), busy=await _busy_gpus(campaign, but=after["run"] if after else ""))
    spec = build_chain(stages, campaign.plan, campaign.profile.parameters, ground, accept, works)
    overruled = accept
    if after is not None:
        (spec["then"] or [spec])[-1]["after"] = dict(after)
        overruled = (*accept, *OF_MEMORY)
    campaign.judge(demote(await preflight(campaign, cache_dir, stages, [spec, *spec["then"]]), overruled))
    errors = [finding for finding in campaign.findings if finding.severity is Severity.ERROR]
    if errors:
        raise FindingError(*errors)
    if any(planned.name == "prompts" for planned in stages):
        for digest, source in campaign.sources.items():
            await campaign.session.upload(source, digest)
    answer = await campaign.session.request(
        "start",
        spec=spec,
        secrets={name: os.environ[name] for name in SECRETS if os.environ.get(name)},
        request=uuid.uuid4().hex,
        restart=restart,
        attempt=None,
        asked_ago=0.0 if asked is None else time.monotonic() - asked,
    )
    await campaign.fresh_survey()
    campaign.look(artifacts=True)
    runs, names = tuple(planned.run for planned in stages), tuple(planned.name for planned in stages)
    already = not answer["started"] and answer["state"] != RunState.DONE.value
    return Started(runs, fresh_names, already, already, names)


async def _busy_gpus(campaign: Campaign, but: str) -> frozenset[str]:
    """GPUs that attempts of this workspace hold, ``but`` one run: a second endpoint takes others, where there are."""
    if not campaign.machine.gpus:
        return frozenset()
    held: set[str] = set()
    for run in (await campaign.session.request("runs"))["runs"]:
        state = state_of(run)
        if state is not None and state.is_active and run["run"] != but:
            spec = await forecasts.read_spec(campaign, run["run"], int(run["attempt"]))
            held |= {str(uuid) for uuid in spec.get("gpus") or ()}
    return frozenset(held)


def _active(campaign: Campaign, stages: Sequence[PlannedStage]) -> list[PlannedStage]:
    """What of these stages is at work or queued on the host, in order."""
    newest = campaign.survey.newest
    queued = queued_behind(campaign.plan, newest)
    found = []
    for planned in stages:
        state = state_of(newest.get(planned.run))
        if (state is not None and state.is_active) or planned.name in queued:
            found.append(planned)
    return found


async def preflight(
    campaign: Campaign, cache_dir: Path, stages: Sequence[PlannedStage], specs: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """What is looked at before a chain starts: prompts, the host's environments and disk, and the launches of engines.

    ``specs`` are those of ``stages``. Raises LinkLost.
    """
    found = await _prompts(campaign, stages) + await _environments(campaign, stages)
    found += await forecasts.disk(campaign, await forecasts.of_chain(campaign, stages))
    return found + await launches.check(campaign, cache_dir, specs)


async def _prompts(campaign: Campaign, stages: Sequence[PlannedStage]) -> list[Finding]:
    """Files without a single record are known before anything is built for them; data sets of a hub are not."""
    if all(planned.name != "prompts" for planned in stages):
        return []
    amounts = await forecasts.amounts_of(campaign)
    if amounts is None or amounts.turns:
        return []
    return [
        error(
            "prompts_empty",
            "There is no prompt to train on.",
            path="stages.prompts.files",
            expected="at least one conversation",
            actual=[path.name for path in campaign.training_files],
            fix="Name prompt files with conversations in [stages.prompts] files.",
        )
    ]


async def _environments(campaign: Campaign, stages: Sequence[PlannedStage]) -> list[Finding]:
    """Adopted interpreters have to be there; those that setup builds are its own affair."""
    wanted = {planned.environment for planned in stages}
    found = []
    for name, entry in campaign.profile.environments.items():
        if not entry.python or name not in wanted:
            continue
        probe = await campaign.session.request("probe", what="path", path=entry.python)
        if not probe["executable"]:
            found.append(
                error(
                    "environment_missing",
                    f"The environment '{name}' is not there: {entry.python} is no program on {campaign.session.name}.",
                    path=f"environments.{name}.python",
                    actual=entry.python,
                    fix="Correct the path, or name a requirement set and let setup build it.",
                )
            )
    return found


async def stop(campaign: Campaign, stage: str, run: str = "", kill: bool = False) -> str:
    """Ask the attempt at work to save and leave; its state then. Raises FindingError `stage_not_running`.

    ``run`` names one under other parameters than the planned one; ``kill`` does not wait for it to save.
    """
    await campaign.fresh_survey()
    if run and run != campaign.plan.stages[stage].run:
        return await _stop_other(campaign, stage, run, kill)
    view = view_of(campaign, stage)
    newest = campaign.survey.newest.get(view.run)
    orphaned = any(finding.code == "remote_process_orphaned" for finding in view.findings)
    at_work = view.state.is_active and view.state is not RunState.QUEUED
    if newest is None or not (at_work or orphaned):
        behind = f" It is queued {view.remark}; stop that one." if view.state is RunState.QUEUED else ""
        raise FindingError(
            error("stage_not_running", f"{stage} is {view.state.value}.{behind}", path=stage, actual=view.state.value)
        )
    answer = await campaign.session.request("stop", run=view.run, attempt=view.attempt, kill=kill)
    campaign.look(artifacts=True)
    return str(answer["state"])


async def _stop_other(campaign: Campaign, stage: str, run: str, kill: bool) -> str:
    newest = campaign.survey.newest.get(run)
    state = state_of(newest)
    if newest is None or newest.get("stage") != stage or state is None or not state.is_active:
        actual = state.value if state else None
        raise FindingError(error("stage_not_running", f"{run} is no {stage} at work.", path=run, actual=actual))
    answer = await campaign.session.request("stop", run=run, attempt=int(newest["attempt"]), kill=kill)
    campaign.look()
    return str(answer["state"])


async def resume(campaign: Campaign, cache_dir: Path, stage: str, through: str, accept: Sequence[str]) -> Started:
    """The next attempt of a stage, and the chain that stood behind it unless ``through`` says otherwise."""
    await campaign.fresh_survey()
    view = view_of(campaign, stage)
    blocking = [finding for finding in view.findings if finding.code in ("remote_process_orphaned", "run_elsewhere")]
    if view.state is RunState.UNKNOWN and blocking:
        raise FindingError(*blocking)
    if view.state not in RESUMABLE:
        raise FindingError(
            error(
                "stage_not_resumable",
                f"{stage} is {view.state.value}; there is nothing to resume.",
                path=stage,
                expected=[state.value for state in RESUMABLE],
                actual=view.state.value,
                fix=f"eagle3-tui run --through {stage}",
            )
        )
    if not through:
        spec = await forecasts.read_spec(campaign, view.run, view.attempt)
        through = next((str(entry["stage"]) for entry in reversed(spec.get("then") or ())), stage)
    return await start(campaign, cache_dir, through, only=False, restart=False, accept=accept)


async def wait_for(campaign: Campaign, through: str) -> Outcome:
    """The end of the chain up to ``through``.

    A host reads its runs one by one, so two looks have to agree that none goes on.
    """
    idle, look = 0, True
    while True:
        await campaign.next_survey(look)
        outcome = outcome_of(campaign, through)
        if outcome is not None and (outcome.reached or idle > 0):
            return outcome
        idle = 0 if outcome is None else idle + 1
        look = idle > 0


def outcome_of(campaign: Campaign, through: str) -> Outcome | None:
    """How the chain stands: None while it goes on, or while that is not known."""
    views = {view.name: view for view in campaign.views()}
    chain = [views[name] for name in campaign.plan.needed(through)]
    target = views[through]
    serving = STAGES[through].makes is None and campaign.is_serving(target)
    # A stage's successor starts just before its own ending is on disk, so a short last stage can be done before it.
    at_work = any(view.state.is_active for view in chain)
    if serving or (target.fresh and target.state is RunState.DONE and not at_work):
        return _outcome(through, target, chain, reached=True)
    if at_work or any(view.state is RunState.UNKNOWN for view in chain):
        return None
    broken = [view for view in chain if not view.fresh and view.state in RESUMABLE]
    return _outcome(through, broken[0] if broken else target, chain, reached=False)


def _outcome(through: str, last: StageView, chain: Sequence[StageView], *, reached: bool) -> Outcome:
    return Outcome(
        through=through,
        stage=last.name,
        state=last.state,
        reached=reached,
        summary=last.summary if reached else {},
        remark=last.remark,
        findings=last.findings,
        stages={view.name: view.state.value for view in chain},
    )


def view_of(campaign: Campaign, stage: str) -> StageView:
    """The view of a stage by name. Raises FindingError for an unknown one."""
    for view in campaign.views():
        if view.name == stage:
            return view
    raise FindingError(error("stage_unknown", f"There is no stage '{stage}'.", path=stage, expected=list(STAGES)))


def attempt_of(campaign: Campaign, stage: str, attempt: int) -> tuple[StageView, int]:
    """A stage's view and the number of the attempt that is asked for; 0 is the newest. Raises FindingError."""
    view = view_of(campaign, stage)
    numbers = [run["attempt"] for run in campaign.survey.runs if run["run"] == view.run]
    wanted = attempt or view.attempt
    if wanted not in numbers or campaign.following is None:
        raise FindingError(
            error(
                "run_absent",
                f"{stage} has no attempt {wanted}." if wanted else f"{stage} has not run yet.",
                path=stage,
                expected=sorted(numbers) or None,
                actual=wanted or None,
            )
        )
    return view, wanted
