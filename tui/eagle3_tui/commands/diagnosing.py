"""`diagnose`: does an engine run the drafter that it should? Of the campaign, or of a server that already runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.findings import Finding, FindingError, Severity, worst
from eagle3_tui.commands import runs
from eagle3_tui.commands.campaign import (
    AcceptOption,
    JsonOption,
    NoInputOption,
    ProfileOption,
    SettingsOption,
    SmokeOption,
    at_work,
    choose,
    opened,
)
from eagle3_tui.commands.output import OK, REFUSED, Output, clean, command
from eagle3_tui.commands.running import (
    DrafterOption,
    EndpointOption,
    KeyOption,
    ModelOption,
    PromptsOption,
    TargetOption,
    bench_text,
    greeting,
    open_drafter,
    prompts_of,
    reached,
    tell_progress,
)

if TYPE_CHECKING:
    from eagle3_backend.control.running import Wanted
    from eagle3_tui.commands.campaign import Choice


def diagnose(
    context: typer.Context,
    endpoint: EndpointOption = None,
    drafter: DrafterOption = None,
    target: TargetOption = None,
    prompts: PromptsOption = None,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Prompts, at most.")] = 40,
    tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, metavar="N", help="Tokens of an answer.")] = 64,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, metavar="N", help="Requests in flight.")] = 8,
    model: ModelOption = "",
    key_env: KeyOption = "",
    accept: AcceptOption = None,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Whether the engine runs the drafter that it should, verify step by verify step, and if not, what it runs.

    Of the campaign: short for run --through diagnose. With --endpoint, --drafter and --target: of a server that already
    runs; both directories lie on the profile's host, where plain torch replays what the server answered.
    """
    if endpoint is None:
        with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
            runs.run_through(control, "diagnose", output, accept=tuple(accept or ()))
        return
    if not drafter or not target:
        raise typer.BadParameter("--endpoint needs --drafter and --target, directories on the profile's host")
    choice = choose(context, profile, settings, no_input)
    with command(as_json, choice.options) as output:
        from eagle3_backend.control.running import Wanted

        wanted = Wanted(count, tokens, (concurrency,))
        told = _measured(choice, output, (endpoint, key_env, model), (drafter, target), prompts, wanted)
        _replayed(choice, output, told, (drafter, target))


def _measured(
    choice: Choice,
    output: Output,
    server: tuple[str, str, str],
    directories: tuple[str, str],
    prompts: list[str] | None,
    wanted: Wanted,
) -> dict[str, Any]:
    """What the server answered, with the ``record`` of it; leaves with 1 when it tells too little for a replay."""
    from eagle3_backend.control import running

    chosen, wanted, found = running.read_prompts(prompts_of(choice, prompts), wanted)
    output.findings(found)
    judged = open_drafter(choice, output, *directories)
    with reached(choice, output, *server) as there:
        output.say(greeting(there))
        told, rounds = running.measure(there, chosen, wanted, judged, partial(tell_progress, output))
        # Whether a replay is possible is about to be seen.
        told["findings"] = [entry for entry in told["findings"] if not entry["code"].startswith("replay_")]
        output.findings(map(Finding.from_json, told["findings"]))
        try:
            return {**told, "record": running.record_of(there, rounds)}
        except FindingError as problem:
            output.findings(problem.findings)
            findings = [*told["findings"], *(finding.to_json() for finding in problem.findings)]
            output.give({**told, "diagnosis": None, "findings": findings}, bench_text(told))
            raise typer.Exit(REFUSED) from None


def _replayed(choice: Choice, output: Output, told: dict[str, Any], directories: tuple[str, str]) -> None:
    """Replay the record on the host and tell the verdict; leaves with 1 for one that is an error."""
    from eagle3_backend.control.commands import Diagnose

    output.say("replaying them in plain torch on the host")
    host = choice.load().host.address
    drafter, target = (place.removeprefix(f"{host}:") for place in directories)
    with opened(choice, output) as control:
        answer: dict[str, Any] = control.submit(Diagnose(told.pop("record"), drafter, target)).result()
    output.findings(map(Finding.from_json, answer["findings"]))
    findings = [*told["findings"], *answer["findings"]]
    output.give({**told, "diagnosis": answer, "findings": findings}, f"{bench_text(told)}\n{_text(answer)}")
    raise typer.Exit(REFUSED if worst(map(Finding.from_json, findings)) is Severity.ERROR else OK)


def _text(answer: dict[str, Any]) -> str:
    controls = ", ".join(
        f"{name} {'failed as it must' if entry['failed_as_it_must'] else 'DID NOT FAIL'}"
        for name, entry in answer["controls"].items()
    )
    verdict = f"{answer['verdict']}: {answer['equal_share']:.2%} of {answer['steps']} verify steps predicted"
    rows = (("verdict", verdict), ("controls", controls), ("report", answer["report"]))
    return "\n".join(clean(f"{name:<14} {words}") for name, words in rows)
