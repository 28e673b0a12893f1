"""Commands about profiles and stage parameters; they touch no host."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_tui.commands.campaign import Choice, JsonOption, ProfileOption, SettingsOption, choose
from eagle3_tui.commands.output import command
from eagle3_tui.places import profiles_by_name, shipped_profiles

if TYPE_CHECKING:
    from eagle3_backend.profile import Profile

profiles = typer.Typer(help="Campaigns as profile files.", no_args_is_help=True)
config = typer.Typer(help="Stage parameters.", no_args_is_help=True)


@profiles.command("list")
def list_profiles(as_json: JsonOption = False) -> None:
    """The profiles that can be asked for by name."""
    with command(as_json) as output:
        shipped = shipped_profiles()
        found = [
            {"name": name, "path": str(path), "shipped": path.parent == shipped}
            for name, path in sorted(profiles_by_name().items())
        ]
        lines = [f"{entry['name']:<32} {'shipped' if entry['shipped'] else entry['path']}" for entry in found]
        output.give({"profiles": found}, "\n".join(lines))


@profiles.command("show")
def show_profile(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="Else the one of --profile.")] = None,
    as_json: JsonOption = False,
) -> None:
    """A profile as it will be used: every value, defaults included."""
    with command(as_json) as output:
        profile = choose(context, name).load()
        data = describe(profile)
        output.give(data, json.dumps(data, indent=2, ensure_ascii=False))


@profiles.command("check")
def check_profile(
    file: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A profile.")], as_json: JsonOption = False
) -> None:
    """Validate a profile and find its prompt files."""
    with command(as_json) as output:
        profile = Choice(file).load()
        _, sources = profile.uploads()
        output.say(f"{profile.path} is valid.")
        output.give({"path": str(profile.path), "prompt_files": len(sources), "findings": []}, str(profile.path))


@config.command("schema")
def schema(as_json: JsonOption = False) -> None:
    """The JSON schema of every stage's parameters."""
    from eagle3_backend.profile import parameter_schema

    with command(as_json) as output:
        data = parameter_schema()
        output.give(data, json.dumps(data, indent=2))


@config.command("reference")
def reference(as_json: JsonOption = False) -> None:
    """Every parameter with its default and meaning, as Markdown; `docs/profiles.md` holds it."""
    from eagle3_backend.profile import parameter_schema

    with command(as_json) as output:
        text = reference_markdown(parameter_schema())
        output.give({"markdown": text}, text)


@config.command("show")
def show_config(
    context: typer.Context,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """The parameters in effect: the profile's, with `--set` on top, else defaults."""
    with command(as_json) as output:
        data = describe(choose(context, profile, settings).load())["stages"]
        lines = [
            f"{stage}.{name} = {json.dumps(value)}" for stage, values in data.items() for name, value in values.items()
        ]
        output.give(data, "\n".join(lines))


def reference_markdown(schema: dict[str, Any]) -> str:
    """One table a stage, for people."""
    parts = []
    for name, stage in schema.items():
        rows = [
            f"| `{field}` | `{json.dumps(entry.get('default', {}))}` | "
            f"{entry['description'].replace('|', chr(92) + '|')} |"
            for field, entry in stage["properties"].items()
            # Setup's own table of environments is filled from the profile's.
            if "default" in entry or name != "setup"
        ]
        parts += [
            f"### `[stages.{name}]`",
            "",
            stage["description"],
            "",
            "| key | default | meaning |",
            "| --- | --- | --- |",
        ]
        parts += [*rows, ""]
    return "\n".join(parts).rstrip()


def describe(profile: Profile) -> dict[str, Any]:
    """A profile as plain values. It holds no secret: keys and tokens never stand in a profile."""
    return {
        "campaign": profile.campaign,
        "path": str(Path(profile.path)),
        "host": profile.host.model_dump(),
        "environments": {name: entry.model_dump() for name, entry in profile.environments.items()},
        "target": profile.target.model_dump(),
        "stages": {name: asdict(values) for name, values in profile.parameters.items()},
    }
