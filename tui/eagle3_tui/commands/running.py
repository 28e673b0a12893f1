"""`bench`; and `bench` and `check` of a server that this product did not start, with a drafter's directory beside."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.findings import Finding, FindingError, Severity, error, worst
from eagle3_tui.commands import benching
from eagle3_tui.commands.campaign import (
    AcceptOption,
    Choice,
    JsonOption,
    NoInputOption,
    ProfileOption,
    SettingsOption,
    SmokeOption,
    choose,
    opened,
)
from eagle3_tui.commands.output import INTERRUPTED, OK, REFUSED, Output, clean, command

if TYPE_CHECKING:
    from eagle3_backend.control.running import Drafter, RunningServer, Wanted

EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="A running vLLM or SGLang server, such as http://127.0.0.1:8000; HOST:PORT is a port of the loopback of "
        "the profile's host, through a tunnel.",
    ),
]
KeyOption = Annotated[
    str, typer.Option("--key-env", metavar="NAME", help="The variable that holds the server's API key.")
]
ModelOption = Annotated[
    str, typer.Option("--model", metavar="NAME", help="The model to ask, where the server has several.")
]
PromptsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prompts",
        metavar="FILE|NAME",
        help="Prompt file, a shipped set by name, or hub:owner/name[@revision][:split[:column]]; repeatable.",
    ),
]
DrafterOption = Annotated[
    str | None, typer.Option("--drafter", metavar="DIR", help="The drafter's directory, to be judged beside.")
]
TargetOption = Annotated[str | None, typer.Option("--target", metavar="DIR", help="The target's directory.")]


def bench(
    context: typer.Context,
    endpoint: EndpointOption = None,
    drafter: DrafterOption = None,
    target: TargetOption = None,
    prompts: PromptsOption = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Prompts, at most: else 40, and four rounds.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", min=1, metavar="N", help="Tokens of an answer: else 64.")
    ] = None,
    concurrency: Annotated[
        str,
        typer.Option("--concurrency", metavar="N[,N...]", help="Requests in flight; each is measured by itself."),
    ] = "",
    depths: Annotated[str, typer.Option("--depths", metavar="K[,K...]", help="Draft depths to measure.")] = "",
    against: Annotated[
        str,
        typer.Option(
            "--against", metavar="WAY[,WAY...]", help="none, ngram, mtp, or directories of drafters on the host."
        ),
    ] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="The whole report as Markdown.")] = False,
    model: ModelOption = "",
    key_env: KeyOption = "",
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    accept: AcceptOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the campaign's drafter at depths and loads, beside what it has to beat; or a server that already runs."""
    choice = choose(context, profile, settings, no_input)
    loads = benching.numbers(concurrency, "--concurrency")
    if not endpoint:
        _alone("--endpoint", drafter or target or prompts or model or key_env or count)
        table = benching.Table(benching.numbers(depths, "--depths"), loads, benching.names(against), tokens)
        ours = tuple(accept or ())
        benching.bench(choice, table, smoke=smoke, accept=ours, as_json=as_json, markdown=markdown)
        return
    _alone("a campaign", depths or against or smoke or accept)
    with command(as_json) as output:
        from eagle3_backend.control import running

        wanted = _wanted(count, tokens, loads)
        chosen, wanted, found = running.read_prompts(prompts_of(choice, prompts), wanted)
        output.findings(found)
        with reached(choice, output, endpoint, key_env, model) as server:
            output.say(greeting(server))
            answer = running.bench(
                server,
                chosen,
                wanted,
                open_drafter(choice, output, drafter, target),
                partial(tell_progress, output),
            )
        _end(output, answer, _markdown(answer) if markdown else _text(answer))


def _wanted(count: int | None, tokens: int | None, loads: tuple[int, ...]) -> Wanted:
    """What is asked for; prompts enough for the rounds that an interval needs, where it is not said how many."""
    from eagle3_backend.control.loads import Wanted
    from eagle3_backend.engines.cells import ROUNDS

    concurrencies = tuple(sorted(set(loads))) or Wanted.concurrencies
    return Wanted(count or max(Wanted.prompts, ROUNDS * concurrencies[-1]), tokens or 64, concurrencies)


def tell_progress(output: Output, concurrency: int, done: int, total: int) -> None:
    output.say(f"{concurrency} in flight: {done} of {total} prompts")


def _alone(needs: str, given: object) -> None:
    """Refuse options that mean nothing here."""
    if given:
        raise typer.BadParameter(f"an option here needs {needs}: see eagle3-tui bench --help")


def check_server(
    choice: Choice, endpoint: str, drafter: str | None, target: str | None, key_env: str, *, as_json: bool
) -> None:
    """`check --endpoint`: who the server is, whether it drafts, and what its release does with the drafter."""
    with command(as_json) as output:
        from eagle3_backend.control import running

        with reached(choice, output, endpoint, key_env, "") as server:
            answer = running.check(server, open_drafter(choice, output, drafter, target))
        text = f"{greeting(server)}\ndrafts         {'yes' if answer['drafts'] else 'no'}"
        _end(output, answer, text)


def open_drafter(choice: Choice, output: Output, drafter: str | None, target: str | None) -> Drafter | None:
    """The directory that is judged beside the server. Raises FindingError."""
    if drafter is None:
        return None
    from eagle3_backend.control.running import Drafter
    from eagle3_tui.commands.models import open_models

    models = open_models(choice, output, drafter, *([target] if target else []))
    output.findings([finding for model in models for finding in model.findings])
    return Drafter(models[0].config, models[0].inventory, models[1].config if target else None)


def prompts_of(choice: Choice, given: list[str] | None) -> list[str]:
    """The files and named sets that are given, else the profile's that no training sees."""
    from eagle3_backend.shipped import whole_name

    if given:
        return [whole_name(Path(), name) for name in given]
    profile = choice.load()
    names: tuple[str, ...] = getattr(profile.parameters["prompts"], "published")  # noqa: B009
    return [whole_name(profile.path.parent, name) for name in names]


@contextmanager
def reached(choice: Choice, output: Output, endpoint: str, key_env: str, model: str) -> Iterator[RunningServer]:
    """The server, through a tunnel where the endpoint is a port of the profile's host. Raises FindingError."""
    from eagle3_backend.control.commands import Tunnel
    from eagle3_backend.control.running import RunningServer

    key = _key(key_env)
    port = _port_on_host(choice, endpoint)
    if port is None:
        yield RunningServer(endpoint, key, model)
        return
    with opened(choice, output) as control:
        local = control.submit(Tunnel(port)).result()["port"]
        yield RunningServer(f"http://127.0.0.1:{local}", key, model)


def _port_on_host(choice: Choice, endpoint: str) -> int | None:
    """The port, where the endpoint is one of the profile's host; None for all that is reached from here."""
    match = re.fullmatch(r"([^/:@]+):(\d{1,5})", endpoint)
    if match is None or match[1] in ("localhost", "127.0.0.1"):
        return None
    return int(match[2]) if choice.load().host.address == match[1] else None


def _key(key_env: str) -> str:
    if key_env and not os.environ.get(key_env):
        raise FindingError(
            error(
                "key_variable_empty",
                f"The variable {key_env} holds no key.",
                path="--key-env",
                actual=key_env,
                fix=f"export {key_env}=...",
            )
        )
    return os.environ.get(key_env, "") if key_env else ""


def greeting(server: RunningServer) -> str:
    told = server.identity
    return clean(f"{told.engine} {told.version} at {server.url}, model {told.model}")


def bench_text(answer: dict[str, Any]) -> str:
    """Acceptance at each load, with what it rests on."""
    lines = [line for row in answer["cells"] for line in _acceptance_lines(row)]
    return "\n".join([*lines, "tokens a verify step with the target's own; 1.00: nothing accepted"] if lines else [])


def _acceptance_lines(row: dict[str, Any]) -> list[str]:
    figures = row["acceptance_length"]
    if figures is None:
        return []
    intervals = zip(figures["by_position"], figures["by_position_intervals"], strict=True)
    places = "  ".join(f"{rate:.3f} ({low:.3f} to {high:.3f})" for rate, (low, high) in intervals)
    return [
        f"{row['concurrency']} in flight",
        f"  length       {figures['mean']:.3f}  ({figures['low']:.3f} to {figures['high']:.3f} over "
        f"{figures['over']}, {figures['steps']} verify steps, depth {figures['depth']})",
        f"  by position  {places or 'not told by this engine'}",
        *_source_lines(figures.get("by_source") or {}),
    ]


def _source_lines(sources: dict[str, Any]) -> list[str]:
    """The acceptance of each prompt set, where there are several."""
    if len(sources) < 2:
        return []
    width = max(11, *map(len, sources))
    lines = []
    for name, told in sources.items():
        rests_on = f"{told['low']:.3f} to {told['high']:.3f} over {told['prompts']} answers"
        rests_on = rests_on if told["prompts"] > 1 else "one answer"
        lines.append(f"  {name:<{width}}  {told['mean']:.3f}  ({rests_on}, {told['steps']} verify steps)")
    return [clean(line) for line in lines]


def _text(answer: dict[str, Any]) -> str:
    from eagle3_tui.loadtable import as_text

    return "\n\n".join(part for part in (bench_text(answer), as_text(answer)) if part)


def _markdown(answer: dict[str, Any]) -> str:
    from eagle3_tui.loadtable import as_markdown

    return as_markdown(answer, f"Bench of {answer['endpoint']}").rstrip("\n")


def _end(output: Output, answer: dict[str, Any], text: str) -> None:
    findings = [Finding.from_json(entry) for entry in answer["findings"]]
    output.findings(findings)
    output.give(answer, text)
    if any(finding.code == "bench_interrupted" for finding in findings):
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(REFUSED if worst(findings) is Severity.ERROR else OK)
