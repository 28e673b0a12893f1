"""`trace`: where a decode step's time goes, of this campaign's engine or of a trace that is there already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.findings import Severity, worst
from eagle3_tui.commands.campaign import (
    AcceptOption,
    JsonOption,
    NoInputOption,
    ProfileOption,
    SettingsOption,
    at_work,
)
from eagle3_tui.commands.output import OK, REFUSED, command
from eagle3_tui.commands.runs import run_through

if TYPE_CHECKING:
    from eagle3_backend.control.snapshot import Outcome

FileOption = Annotated[
    list[Path] | None,
    typer.Option("--file", metavar="FILE", help="A torch profiler trace (.json, .json.gz); once for each rank."),
]
PlainOption = Annotated[
    list[Path] | None,
    typer.Option("--plain", metavar="FILE", help="Beside --file: a trace without the drafter; once for each rank."),
]


def trace(
    context: typer.Context,
    file: FileOption = None,
    plain: PlainOption = None,
    depth: Annotated[int, typer.Option("--depth", min=1, metavar="K", help="Beside --plain: drafts of a step.")] = 3,
    accept: AcceptOption = None,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Where a decode step's time goes, and what speculation can win; with --file nothing is run."""
    if plain and not file:
        raise typer.BadParameter("--plain stands beside --file")
    if file:
        reduce_files(file, plain or [], depth, as_json=as_json)
    with at_work(context, profile, settings, no_input, as_json=as_json) as (control, output):

        def told(_: str, outcome: Outcome, __: dict[str, Any]) -> str:
            from eagle3_tui.tracefigures import text

            bench = control.snapshot().stage("bench")
            return text(outcome.summary, bench.summary if bench is not None and bench.fresh else None)

        run_through(control, "trace", output, accept=tuple(accept or ()), text=told)


def reduce_files(files: list[Path], plain: list[Path], depth: int, *, as_json: bool) -> None:
    """Reduce traces that are there; leaves with 1 when a finding is an error."""
    with command(as_json) as output:
        from eagle3_backend.engines.traces.gains import Profiled, gains
        from eagle3_backend.engines.traces.reduction import timelines
        from eagle3_backend.engines.traces.report import findings_of, profile
        from eagle3_tui.tracefigures import text

        ranks = [rank for path in files for rank in timelines(path)]
        others = [rank for path in plain for rank in timelines(path)]
        findings = [*findings_of(ranks), *(findings_of(others) if others else ())]
        answer: dict[str, Any] = {"drafted": profile(ranks), "plain": profile(others) if others else None}
        if others:
            first = ranks[0]
            alike = first.steps.requests == others[0].steps.requests
            drafting = first.draft_us if first.drafter_told_by else []
            answer["gains"] = gains(Profiled(others[0].step_us if alike else [], first.step_us, drafting, [], depth))
        output.findings(findings)
        output.give({**answer, "findings": [finding.to_json() for finding in findings]}, text(answer))
        raise typer.Exit(REFUSED if worst(findings) is Severity.ERROR else OK)
