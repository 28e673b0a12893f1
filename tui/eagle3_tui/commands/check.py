"""`check` and `engines`: a drafter before the engines, and what each engine does with drafters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.findings import Finding, FindingError, Severity, worst
from eagle3_tui.commands.campaign import JsonOption, NoInputOption, ProfileOption, choose
from eagle3_tui.commands.output import OK, REFUSED, Output, clean, command
from eagle3_tui.commands.running import EndpointOption, KeyOption, check_server

if TYPE_CHECKING:
    from eagle3_tui.commands.models import Model


class Engine(str, Enum):
    """Engines by name, and all of them."""

    VLLM = "vllm"
    SGLANG = "sglang"
    ALL = "all"


DrafterArgument = Annotated[
    str | None, typer.Argument(metavar="DRAFTER", help="A drafter's directory, its config.json alone, or HOST:PATH.")
]
TargetOption = Annotated[
    str | None, typer.Option(metavar="T", help="The target's directory or config.json, or HOST:PATH.")
]
EngineOption = Annotated[Engine, typer.Option(help="The engine that is to serve it.")]
VersionOption = Annotated[
    str, typer.Option(metavar="V", help="A release of that engine, such as 0.5.10; else the current one.")
]
ContextOption = Annotated[
    int, typer.Option("--context", min=0, metavar="N", help="The longest context that will be served, tokens.")
]


def check(
    context: typer.Context,
    drafter: DrafterArgument = None,
    target: TargetOption = None,
    engine: EngineOption = Engine.ALL,
    engine_version: VersionOption = "",
    length: ContextOption = 0,
    endpoint: EndpointOption = None,
    key_env: KeyOption = "",
    profile: ProfileOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Whether an engine will read a drafter as it was trained; exit 1 when one will not. Needs no host and no GPU.

    With --endpoint it is asked for the engine that runs there, and whether that one drafts.
    """
    from eagle3_backend.drafter.capabilities import CURRENT, ENGINES

    if endpoint:
        check_server(choose(context, profile, no_input=no_input), endpoint, drafter, target, key_env, as_json=as_json)
        return
    if drafter is None:
        raise typer.BadParameter("name a drafter, or a server with --endpoint")
    if engine_version and engine is Engine.ALL:
        raise typer.BadParameter("--engine-version needs --engine vllm or --engine sglang")
    with command(as_json) as output:
        from eagle3_tui.commands.models import open_models

        places = [drafter, *([target] if target else [])]
        models = open_models(choose(context, profile, no_input=no_input), output, *places)
        asked = ENGINES if engine is Engine.ALL else (engine.value,)
        releases = {name: engine_version or CURRENT[name] for name in asked}
        judged = {name: _judge(name, release, length, *models) for name, release in releases.items()}
        files = [finding for model in models for finding in model.findings]
        _tell(output, files, judged, releases)
        for gap in _gaps(*models):
            output.say(gap)
        output.give(_data(models, files, judged, releases), _text(models, judged, releases))
        found = worst([*files, *(finding for findings in judged.values() for finding in findings)])
        raise typer.Exit(REFUSED if found is Severity.ERROR else OK)


HostOption = Annotated[
    str | None, typer.Option(metavar="H", help="Tell the options of the engines that are installed on this host.")
]
SearchOption = Annotated[
    str, typer.Option(metavar="WORDS", help="Of the installed options, only those that hold all these words.")
]


def engines(
    context: typer.Context,
    host: HostOption = None,
    search: SearchOption = "",
    profile: ProfileOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """What each engine does with a drafter, by release; with --host what the installed ones can be asked."""
    if host is not None:
        from eagle3_tui.commands.engine_options import show

        show(choose(context, profile, no_input=no_input), host, search, as_json)
    elif search:
        raise typer.BadParameter("--search needs --host: it searches what is installed there")
    else:
        _show_table(as_json)


def _show_table(as_json: bool) -> None:
    from eagle3_backend.drafter.capabilities import CURRENT, ENGINES, OLDEST, TITLES
    from eagle3_backend.drafter.capability_table import table

    with command(as_json) as output:
        rows = table()
        releases = {name: {"current": CURRENT[name], "oldest": OLDEST[name]} for name in ENGINES}
        heads = ["", *(f"{TITLES[name]} {CURRENT[name]}" for name in ENGINES)]
        cells = [heads, *([row.title, *row.cells.values()] for row in rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(2)]
        lines = ["  ".join([*map(str.ljust, line[:2], widths), *line[2:]]).rstrip() for line in cells]
        output.give({"engines": releases, "rows": [row.to_json() for row in rows]}, "\n".join(lines))


def capabilities_markdown() -> str:
    """The capability table for the documentation."""
    from eagle3_backend.drafter.capabilities import CURRENT, ENGINES, OLDEST, TITLES
    from eagle3_backend.drafter.capability_table import table

    heads = [f"{TITLES[name]} {OLDEST[name]} to {CURRENT[name]}" for name in ENGINES]
    lines = [f"| what | {' | '.join(heads)} | source |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.title} | {' | '.join(row.cells.values())} | {row.source} |" for row in table()]
    return "\n".join(lines)


def _judge(engine: str, release: str, length: int, drafter: Model, target: Model | None = None) -> list[Finding]:
    from eagle3_backend.drafter.checks import check as check_drafter

    try:
        return check_drafter(
            drafter.config,
            engine,
            version=release,
            target=target.config if target else None,
            inventory=drafter.inventory,
            context=length or None,
            token_ids=_token_ids(drafter, target),
        )
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


def _token_ids(drafter: Model, target: Model | None) -> tuple[dict[str, int], dict[str, int]] | None:
    """Of the tokenizers beside both, where there are two."""
    from eagle3_backend.drafter.tokenizers import token_ids

    if drafter.folder is None or target is None or target.folder is None:
        return None
    drafts = token_ids(drafter.folder)
    targets = token_ids(target.folder) if drafts is not None else None
    return None if drafts is None or targets is None else (drafts, targets)


def _tell(output: Output, files: Sequence[Finding], judged: dict[str, list[Finding]], releases: dict[str, str]) -> None:
    """Findings as messages: first what holds for every engine, then each engine's own."""
    from eagle3_backend.drafter.capabilities import TITLES

    lists = list(judged.values())
    common = [finding for finding in lists[0] if len(lists) > 1 and all(finding in others for others in lists[1:])]
    output.findings([*files, *common])
    for engine, findings in judged.items():
        own = [finding for finding in findings if finding not in common]
        if own and len(judged) > 1:
            output.say(f"on {TITLES[engine]} {releases[engine]}:")
        output.findings(own)


def _gaps(drafter: Model, target: Model | None = None) -> list[str]:
    """What "ok" does not mean, for want of something to look at."""
    gaps = []
    if target is None:
        gaps.append("not judged without --target: its width, vocabulary, layers, rotary embedding and positions")
    if drafter.inventory is None:
        gaps.append("not judged without the drafter's directory: its tensors and vocabulary maps")
    return gaps


def _data(
    models: Sequence[Model], files: Sequence[Finding], judged: dict[str, list[Finding]], releases: dict[str, str]
) -> dict[str, Any]:
    from eagle3_backend.drafter.checks import Subject, facts

    drafter, target = models[0], models[1] if len(models) > 1 else None
    try:
        subject = Subject.of(
            drafter.config,
            next(iter(judged)),
            target=target.config if target else None,
            inventory=drafter.inventory,
        )
        known = facts(subject)
    except FindingError:
        known = {}
    return {
        "drafter": drafter.path,
        "target": target.path if target else None,
        "facts": known,
        "findings": [finding.to_json() for finding in files],
        "engines": {
            name: {"version": releases[name], "findings": [finding.to_json() for finding in findings]}
            for name, findings in judged.items()
        },
    }


def _text(models: Sequence[Model], judged: dict[str, list[Finding]], releases: dict[str, str]) -> str:
    from eagle3_backend.drafter.capabilities import TITLES

    lines = [clean(models[0].path)]
    for engine, findings in judged.items():
        counts = Counter(finding.severity.value for finding in findings)
        kinds = [kind for kind in ("error", "warning") if counts[kind]]
        words = [f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}" for kind in kinds]
        release = f"{TITLES[engine]} {releases[engine]}"
        lines.append(f"{release:<14} {', '.join(words) or 'ok'}")
    return "\n".join(lines)
