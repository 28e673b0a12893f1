"""Commands that start, stop and follow work: run, resume, attach, stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.states import RunState
from eagle3_tui.commands.campaign import (
    AcceptOption,
    JsonOption,
    NoInputOption,
    OptionalStage,
    ProfileOption,
    SettingsOption,
    SmokeOption,
    StageArgument,
    ThroughOption,
    at_work,
    known_stage,
)
from eagle3_tui.commands.output import (
    CONFLICT,
    INTERRUPTED,
    OK,
    STAGE_ENDED_BADLY,
    Output,
    clean,
    duration,
)
from eagle3_tui.commands.watch import Progress, follow

if TYPE_CHECKING:
    from eagle3_backend.control import Control
    from eagle3_backend.control.snapshot import Outcome, Snapshot, StageView, Started

Tell = Callable[[str, "Outcome", dict[str, Any]], str]
"""The result of a chain in words: its last stage, how it ended, and what it cost."""

RequiredThrough = Annotated[
    str, typer.Option("--through", metavar="STAGE", callback=known_stage, help="Last stage of the chain.")
]


def run(
    context: typer.Context,
    through: RequiredThrough,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    only: Annotated[bool, typer.Option("--only", help="This stage alone, not what it stands on.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Ten samples through everything.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as the chain has started.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Set the old artifact aside and begin anew.")] = False,
    accept: AcceptOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, as a shell script.")] = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run everything that is not fresh, up to a stage, and wait for it."""
    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        if dry_run:
            print_script(control, through, output)
        else:
            run_through(control, through, output, only=only, detach=detach, restart=restart, accept=tuple(accept or ()))


def resume(
    context: typer.Context,
    stage: StageArgument,
    through: ThroughOption = None,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as the attempt has started.")] = False,
    accept: AcceptOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Next attempt of a stage from its newest whole checkpoint, then the rest of the chain."""
    from eagle3_backend.control.commands import Resume

    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        started = control.submit(Resume(stage, through or "", tuple(accept or ()))).result()
        # Without --through the chain that stood behind the stage goes on too.
        last = through or (started.stages[-1] if started.stages else stage)
        finish(control, last, started, output, detach=detach)


def attach(
    context: typer.Context,
    stage: OptionalStage = None,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Follow work that is under way to its end. It only reads: interrupting it never touches a run."""
    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        through = stage or _last_active(control.snapshot())
        if through is None:
            output.say("Nothing is running in this campaign.")
            output.give({"stage": None, "active": False}, "")
            return
        view = control.snapshot().stage(through)
        if view is not None and view.state in (RunState.READY, RunState.BLOCKED):
            raise FindingError(
                error(
                    "stage_not_running",
                    f"{through} is {view.state.value}; there is nothing to follow.",
                    path=through,
                    fix=f"eagle3-tui run --through {through}",
                )
            )
        was_fresh = view is not None and view.fresh
        report(control, through, watched(control, through, output), output, fresh=was_fresh)


def stop(
    context: typer.Context,
    stage: OptionalStage = None,
    everything: Annotated[bool, typer.Option("--all", help="Every stage that is active.")] = False,
    run_name: Annotated[
        str, typer.Option("--run", metavar="RUN", help="A run of the stage under other parameters: another endpoint.")
    ] = "",
    kill: Annotated[bool, typer.Option("--kill", help="At once: what is not saved yet is lost.")] = False,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a stage to save and leave, and wait until it has."""
    from eagle3_backend.control.commands import Stop

    if bool(stage) == everything:
        raise typer.BadParameter("name a stage, or give --all")
    if run_name and stage != "serve":
        raise typer.BadParameter("--run names an endpoint: stop serve --run RUN")
    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        # What is queued behind a stopped stage does not start.
        views = [view for view in control.snapshot().stages if view.state is not RunState.QUEUED]
        names = [view.name for view in views if view.state.is_active] if everything else [str(stage)]
        others = [each.run for each in control.snapshot().services if not each.planned] if everything else []
        if not names and not others:
            output.say("Nothing is running in this campaign.")
        for other in others:
            control.submit(Stop("serve", other, kill)).result()
        for name in names:
            control.submit(Stop(name, run_name, kill)).result()
        if run_name:
            output.give({"stages": {"serve": wait_for_service(control, run_name)}}, f"{run_name} stopped")
            return
        states = _wait_for_end(control, names, output)
        ended = {other: wait_for_service(control, other) for other in others}
        answer = {"stages": states, "services": ended} if others else {"stages": states}
        output.give(answer, "\n".join(f"{name} {state}" for name, state in {**states, **ended}.items()))


def run_through(
    control: Control,
    through: str,
    output: Output,
    *,
    only: bool = False,
    detach: bool = False,
    restart: bool = False,
    accept: tuple[str, ...] = (),
    text: Tell | None = None,
) -> None:
    """Forecast, start, watch and report a chain, in words of ``text``; leaves with the exit code of its end."""
    from eagle3_backend.control.commands import Start

    if not only:
        print_forecast(control, through, output)
    started = control.submit(Start(through, only, restart, accept)).result()
    finish(control, through, started, output, detach=detach, text=text)


def finish(
    control: Control, through: str, started: Started, output: Output, *, detach: bool, text: Tell | None = None
) -> None:
    """What follows a start: leave at once, or watch to the end and tell the result."""
    if started.already_running and not started.same_chain:
        output.say("Other work of this campaign is active on the host; stop it, or attach to it.")
        output.give({"stage": through, "conflict": True, "runs": list(started.runs)}, "")
        raise typer.Exit(CONFLICT)
    if started.already_running:
        output.say("Already running; watching it.")
    if detach and started.runs:
        output.say("Started; the host goes on by itself. Follow it: eagle3-tui attach")
        answer = {"stage": through, "fresh": False, "detached": True, "runs": list(started.runs)}
        output.give(answer, "\n".join(started.runs))
        return
    outcome = watched(control, through, output)
    report(control, through, outcome, output, fresh=not started.runs, runs=started.runs, text=text)


def watched(control: Control, through: str, output: Output) -> Outcome:
    try:
        return follow(control, through, sys.stderr)
    except KeyboardInterrupt:
        output.say("No longer watching; the run goes on on the host. Follow it again: eagle3-tui attach")
        raise typer.Exit(INTERRUPTED) from None


def report(
    control: Control,
    through: str,
    outcome: Outcome,
    output: Output,
    *,
    fresh: bool,
    runs: tuple[str, ...] = (),
    text: Tell | None = None,
) -> None:
    """Print how a chain ended; leaves with 6 when its last stage did not get there."""
    snapshot = control.snapshot()
    totals = cost(snapshot, through)
    answer = {
        "campaign": snapshot.campaign,
        "stage": through,
        "fresh": fresh,
        "reached": outcome.reached,
        "result": outcome.summary if outcome.reached else None,
        "runs": list(runs),
        "ended": {"stage": outcome.stage, "state": outcome.state.value, "remark": outcome.remark},
        **totals,
        "findings": [finding.to_json() for finding in outcome.findings],
    }
    output.give(answer, (text or result_text)(through, outcome, totals) if outcome.reached else "")
    if outcome.reached:
        output.say(f"{through} is fresh: nothing to do." if fresh else f"{through} is {outcome.state.value}.")
        raise typer.Exit(OK)
    output.findings(outcome.findings)
    remark = f" ({clean(outcome.remark)})" if outcome.remark else ""
    output.say(f"{outcome.stage} ended as {outcome.state.value}{remark}. Its log: eagle3-tui logs {outcome.stage}")
    raise typer.Exit(STAGE_ENDED_BADLY)


_COSTS = {"cpu_seconds": "cpu_seconds", "wall_seconds": "seconds", "engine_starts": "engine_starts"}
"""What a call tells of the whole chain, and the key of each in the summary of one stage."""


def cost(snapshot: Snapshot, through: str) -> dict[str, Any]:
    """What the artifacts behind ``through`` took to make: CPU and wall seconds, and engine starts.

    A stage whose summary does not tell one of them leaves it out of the sum; nothing known at all is null.
    """
    summaries = [view.summary for view in map(snapshot.stage, snapshot.needed(through)) if view is not None]
    totals: dict[str, Any] = {}
    for name, key in _COSTS.items():
        known = [summary[key] for summary in summaries if isinstance(summary.get(key), (int, float))]
        totals[name] = round(sum(known), 1) if known else None
    return totals


def print_script(control: Control, through: str, output: Output) -> None:
    from eagle3_backend.control.commands import DryRun

    answer = control.submit(DryRun(through)).result()
    output.findings(map(Finding.from_json, answer["findings"]))
    output.give(answer, answer["script"])


def print_forecast(control: Control, through: str, output: Output) -> None:
    """Time, disk and money, stage by stage, as messages."""
    from eagle3_backend.control.commands import Forecast

    answer = control.submit(Forecast(through)).result()
    if not answer["stages"]:
        return
    output.say("forecast:")
    for entry in answer["stages"]:
        output.say(f"  {entry['stage']:<9} {_amounts(entry)}  ({entry['basis']})")
    total = answer["total"]
    price = f"  costs {total['cost']:.2f}" if total.get("cost") else ""
    output.say(f"  {'total':<9} {_amounts(total)}{price}")


def _amounts(entry: dict[str, Any]) -> str:
    from eagle3_tui.text import size  # rich comes with it

    took = "?" if entry["seconds"] is None else duration(entry["seconds"])
    room = "?" if entry["bytes"] is None else size(entry["bytes"])
    return f"{took:>8}  {room:>9}"


def _last_active(snapshot: Snapshot) -> str | None:
    active = [view.name for view in snapshot.stages if view.state.is_active]
    return active[-1] if active else None


def wait_for_service(control: Control, run: str) -> str:
    """Wait until an endpoint under other parameters is no longer at work; its state then."""
    while any(service.run == run for service in control.snapshot().services):
        time.sleep(0.2)
    return RunState.STOPPED.value


def _wait_for_end(control: Control, names: list[str], output: Output) -> dict[str, str]:
    """The states of these stages once none is active; progress meanwhile."""
    progress = Progress(sys.stderr)
    while True:
        snapshot = control.snapshot()
        progress.show(snapshot)
        views: list[StageView] = [view for view in map(snapshot.stage, names) if view is not None]
        # Unknown is a lost link or an orphan: neither has ended.
        if not any(view.state.is_active or view.state is RunState.UNKNOWN for view in views):
            progress.end()
            return {view.name: view.state.value for view in views}
        time.sleep(0.2)


def result_text(through: str, outcome: Outcome, totals: dict[str, Any]) -> str:
    """The result's figures as lines ``name  value``; intervals as mean [low, high]."""
    own = {name: value for name, value in outcome.summary.items() if name not in _COSTS.values()}
    if through == "trace":
        from eagle3_tui.tracefigures import text

        return text(own)
    lines = [f"{name:<34} {value}" for name, value in _figures(own)]
    if through == "bench":
        from eagle3_tui.loadtable import as_text  # rich comes with it

        lines.append("acceptance length is in tokens per target step, the target's own token included")
        lines += [table] if (table := as_text(outcome.summary)) else []
    lines += [f"{name + ' of the chain':<34} {value}" for name, value in totals.items() if value is not None]
    return "\n".join(lines)


def _figures(summary: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in summary.items():
        label = f"{prefix}{name}"
        if isinstance(value, dict) and {"mean", "low", "high"} <= value.keys():
            found.append((label, f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"))
        elif isinstance(value, dict):
            found += _figures(value, f"{label}.")
        elif isinstance(value, (str, int, float)):
            found.append((clean(label), clean(str(value))))
    return found
