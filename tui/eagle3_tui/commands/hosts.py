"""Commands about hosts: which are known, whose key is trusted, and who holds locks there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import typer

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_tui.commands.campaign import (
    DEFAULT_PROFILE,
    Choice,
    JsonOption,
    NoInputOption,
    ProfileOption,
    at_work,
    choose,
    facade,
    open_campaign,
)
from eagle3_tui.commands.output import clean, command, duration
from eagle3_tui.places import find_profile, profiles_by_name

app = typer.Typer(help="Known hosts, their keys and their locks.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The host's address, as the profile has it.")]
FingerprintOption = Annotated[
    str | None, typer.Option(metavar="SHA256:...", help="Save an unknown key without asking when it is this one.")
]
ConfirmOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The host's name again, instead of typing it when asked.")
]


@app.command("list")
def list_hosts(as_json: JsonOption = False) -> None:
    """The hosts that this laptop has worked with and their workspaces, then other names of ~/.ssh/config."""
    from eagle3_backend.control.commands import Hosts

    with command(as_json) as output, facade() as control:
        answer = control.submit(Hosts()).result()
        lines = [clean(f"{host['name']:<24} {', '.join(host['workspaces'])}") for host in answer["hosts"]]
        lines += [clean(f"{name:<24} in ~/.ssh/config, not used yet") for name in answer["candidates"]]
        output.give(answer, "\n".join(lines) if lines else "No host yet: `eagle3-tui --profile P hosts add NAME`.")


def reach(
    context: typer.Context,
    name: NameArgument,
    profile: ProfileOption = None,
    fingerprint: FingerprintOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Open the profile's host, which the facade then remembers, and tell whether its key was saved."""
    choice = choose_by_host(choose(context, profile, no_input=no_input), name)
    with command(as_json, choice.options) as output, facade() as control:
        require_host(choice, name)
        saved = open_campaign(control, choice, output, fingerprint=fingerprint)
        output.say(f"{name} is reached" + (", and its key is saved." if saved else "; its key was known."))
        output.give({"name": name, "key_saved": saved}, name)


# One act under the two names that people look for.
_REACH = {
    "add": "Reach the profile's host for the first time and remember it; an unknown key is asked about.",
    "trust": "Save the key of a host that is not in known_hosts. A changed key is never taken: see `hosts rebind`.",
}
for _name, _help in _REACH.items():
    app.command(_name, help=_help)(reach)


@app.command()
def locks(
    context: typer.Context,
    profile: ProfileOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """The locks that our user holds on the profile's host: what is locked, by which run and by which processes."""
    from eagle3_backend.control.commands import Locks

    with at_work(context, profile, None, no_input, as_json=as_json) as (control, output):
        answer = control.submit(Locks()).result()
        if answer["problem"] is not None:
            output.findings([Finding.from_json(answer["problem"])])
        # With a problem an empty list says nothing of what is held.
        empty = "" if answer["problem"] else "No lock is held."
        output.give(answer, "\n".join(map(_lock_line, answer["locks"])) or empty)


def _lock_line(lock: Mapping[str, Any]) -> str:
    held = duration(lock["seconds"]) if lock["seconds"] is not None else "-"
    pids = ", ".join(str(process["pid"]) for process in lock["processes"])
    living = f"alive: {pids}" if pids else "no process seen"
    words = (f"{lock['kind']:<9}", lock["thing"] or "not told", lock["run"] or "-", lock["user"] or "-", held, living)
    return clean("  ".join(words) + ("  no supervisor" if lock["orphaned"] else ""))


@app.command()
def rebind(
    context: typer.Context,
    name: NameArgument,
    profile: ProfileOption = None,
    confirm: ConfirmOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """A host was replaced: take its new key, and take over the attempts of its workspace."""
    from eagle3_backend.control.commands import NEW_KEY, Open, Rebind

    choice = choose_by_host(choose(context, profile, no_input=no_input), name)
    with command(as_json, choice.options) as output, facade() as control:
        require_host(choice, name)
        try:
            control.submit(Open(find_profile(choice.profile), choice.settings)).result()
        except FindingError as problem:
            # A new key is what this command is for; anything else stops it. Under a new port it is an unknown one.
            if not any(finding.code in NEW_KEY for finding in problem.findings):
                raise
        planned = control.submit(Rebind(name)).result()
        output.say(_differences(planned))
        if not planned.get("new_fingerprint") and not planned.get("lost"):
            output.say("There is nothing to replace: its key is the known one.")
            output.give(planned, "")
            return
        if confirm is None and choice.ask and sys.stdin.isatty():
            confirm = typer.prompt("Type the host's name to replace its key", err=True)
        if confirm != name:
            raise FindingError(
                error(
                    "confirmation_missing",
                    "Nothing was replaced: the host's name was not repeated.",
                    path=name,
                    expected=name,
                    actual=confirm,
                    fix=f"eagle3-tui hosts rebind {name} --confirm {name}",
                )
            )
        answer = control.submit(Rebind(name, confirm=True)).result()
        output.give(answer, clean(f"{name} is bound to its new key."))


def _differences(planned: dict[str, Any]) -> str:
    return "\n".join(clean(f"{name:<16} {value}") for name, value in planned.items() if value not in (None, "", []))


def choose_by_host(choice: Choice, name: str) -> Choice:
    """The chosen campaign; where none was chosen, the first profile that works on the host ``name``."""
    if choice.profile != DEFAULT_PROFILE:
        return choice
    for profile in profiles_by_name():
        candidate = replace(choice, profile=profile)
        with suppress(FindingError):
            if _address(candidate) == name:
                return candidate
    return choice


def _address(choice: Choice) -> str:
    host = choice.load().host
    return host.address or " ".join(host.transport)


def require_host(choice: Choice, name: str) -> None:
    address = _address(choice)
    if name != address:
        raise FindingError(
            error(
                "host_not_in_profile",
                f"The profile '{choice.profile}' works on another host.",
                path="host.address",
                expected=address,
                actual=name,
                fix="Name the profile of that host with --profile.",
            )
        )
