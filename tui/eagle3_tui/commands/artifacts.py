"""`artifacts`: what a campaign keeps on its host, and deleting some of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_tui.commands.campaign import JsonOption, NoInputOption, ProfileOption, SettingsOption, SmokeOption, at_work
from eagle3_tui.commands.output import REFUSED, clean

if TYPE_CHECKING:
    from eagle3_backend.control import Control

app = typer.Typer(
    help="What the campaign keeps on its host, with sizes; `artifacts delete` takes some of it away.",
    invoke_without_command=True,
)


@app.callback()
def list_artifacts(
    context: typer.Context,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    if context.invoked_subcommand is not None:
        if profile or settings or smoke or no_input or as_json:
            raise typer.BadParameter("options stand behind `delete`, so that it is about the right campaign")
        return
    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        answer = _ask(control)
        if answer["left_off"]:
            output.say(f"{answer['left_off']} older ones are left off.")
        output.give(answer, _table(answer["artifacts"]) or "Nothing was made yet.")


@app.command()
def delete(
    context: typer.Context,
    which: Annotated[
        list[str] | None,
        typer.Argument(metavar="STAGE/NAME|PATH...", help="As `eagle3-tui artifacts` lists them."),
    ] = None,
    old: Annotated[bool, typer.Option("--old", help="All that restarts have set aside.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; without it only what would go is told.")] = False,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete artifacts on the host for good, unless a run is at work with them; runs and their logs stay."""
    from eagle3_backend.control.commands import DeleteArtifact

    if bool(which) == old:
        raise typer.BadParameter("name artifacts, or give --old")
    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        chosen = _chosen(_ask(control)["artifacts"], which or (), old)
        from eagle3_tui.kept import missed
        from eagle3_tui.text import size

        for entry in chosen:
            output.say(clean(f"{entry['path']}  {size(entry['bytes'])}  {missed(entry)}"))
        if not yes:
            if chosen:
                output.say("Nothing is deleted yet: the same with --yes does it.")
            output.give({"deleted": [], "would_delete": chosen}, "")
            raise typer.Exit(REFUSED if chosen else 0)
        gone: list[dict[str, Any]] = []
        refused: list[Finding] = []
        for entry in chosen:
            try:
                gone.append(control.submit(DeleteArtifact(str(entry["path"]))).result())
            except FindingError as problem:
                refused += problem.findings
        freed = sum(answer["bytes"] for answer in gone)
        told = {"deleted": gone, "bytes": freed, "findings": [finding.to_json() for finding in refused]}
        output.findings(refused)
        output.give(told, f"deleted {len(gone)}, {size(freed)}")
        if refused:
            from eagle3_tui.commands.output import exit_code

            raise typer.Exit(exit_code(refused))


def _ask(control: Control) -> dict[str, Any]:
    from eagle3_backend.control.commands import Artifacts

    answer: dict[str, Any] = control.submit(Artifacts()).result()
    return answer


def _chosen(entries: Sequence[dict[str, Any]], which: Sequence[str], old: bool) -> list[dict[str, Any]]:
    """The entries that are named, each once. Raises FindingError for a name that none has."""
    if old:
        return [entry for entry in entries if entry["aside"]]
    found: dict[str, dict[str, Any]] = {}
    for word in which:
        wanted = word.rstrip("/")
        there = [entry for entry in entries if wanted in (entry["path"], f"{entry['stage']}/{entry['name']}")]
        if not there:
            raise FindingError(
                error(
                    "artifact_absent",
                    f"The campaign has no artifact {word}.",
                    path=word,
                    expected=[f"{entry['stage']}/{entry['name']}" for entry in entries][:20],
                    fix="eagle3-tui artifacts",
                )
            )
        found.update({entry["path"]: entry for entry in there})
    return list(found.values())


def _table(entries: Sequence[Mapping[str, Any]]) -> str:
    from eagle3_tui.kept import standing
    from eagle3_tui.text import size

    names = [clean(f"{entry['stage']}/{entry['name']}") for entry in entries]
    width = max(map(len, names), default=0)
    lines = [
        f"{name.ljust(width)}  {size(entry['bytes']):>9}  {standing(entry)}"
        for name, entry in zip(names, entries, strict=True)
    ]
    if lines:
        lines.append(f"{'total'.ljust(width)}  {size(sum(entry['bytes'] for entry in entries)):>9}")
    return "\n".join(lines)
