"""Options that every command about a campaign shares, and the campaign opened behind the facade."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from eagle3_backend.findings import Finding, FindingError
from eagle3_tui import places
from eagle3_tui.commands.output import Output, clean, command

if TYPE_CHECKING:
    from eagle3_backend.control import Control
    from eagle3_backend.profile import Profile

DEFAULT_PROFILE = "local"

PATIENCE_SECONDS = 3.0
"""How long a host may be silent before the operator is told what takes so long."""


def known_stage(name: str | None) -> str | None:
    """A stage name as typed, or a usage error that names the nearest one."""
    # Imported here: a bare start of the panel names no stage.
    from eagle3_backend.pipeline.stages import STAGES

    if not name or name in STAGES:
        return name
    near = difflib.get_close_matches(name, STAGES, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "known: " + ", ".join(STAGES)
    raise typer.BadParameter(f"'{name}' is not a stage; {hint}")


def _complete_stage(incomplete: str) -> list[str]:
    from eagle3_backend.pipeline.stages import STAGES

    return [name for name in STAGES if name.startswith(incomplete)]


ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", "-p", metavar="NAME|FILE", help="A shipped profile by name, or a profile file."),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STAGE.FIELD=VALUE", help="Override a stage parameter; repeatable."),
]
NoInputOption = Annotated[bool, typer.Option("--no-input", help="Never ask; an unknown host key is refused.")]
SmokeOption = Annotated[bool, typer.Option("--smoke", help="The smoke campaign instead of the whole one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option("--accept", metavar="CODE", help="Go on past findings of this code; repeatable, kept in the journal."),
]
StageArgument = Annotated[
    str, typer.Argument(metavar="STAGE", callback=known_stage, autocompletion=_complete_stage, help="A stage by name.")
]
OptionalStage = Annotated[
    str | None,
    typer.Argument(metavar="STAGE", callback=known_stage, autocompletion=_complete_stage, help="A stage by name."),
]
ThroughOption = Annotated[
    str | None,
    typer.Option(
        metavar="STAGE", callback=known_stage, autocompletion=_complete_stage, help="Last stage of the chain."
    ),
]


@dataclass(frozen=True)
class Choice:
    """Which campaign a command is about. ``ask`` allows questions on the terminal."""

    profile: str = DEFAULT_PROFILE
    settings: tuple[str, ...] = ()
    ask: bool = True

    @property
    def options(self) -> tuple[str, ...]:
        """The words before a command that choose this campaign."""
        named = () if self.profile == DEFAULT_PROFILE else ("--profile", self.profile)
        return (*named, *(word for setting in self.settings for word in ("--set", setting)))

    def load(self) -> Profile:
        """The profile with its settings, without touching the host. Raises FindingError."""
        from eagle3_backend.profile import load

        return load(places.find_profile(self.profile)).with_settings(list(self.settings))


def choose(
    context: typer.Context, profile: str | None = None, settings: list[str] | None = None, no_input: bool = False
) -> Choice:
    """The campaign named before the command (`eagle3-tui --profile P status`) or behind it, which wins."""
    before: Choice = context.obj or Choice()
    return Choice(
        profile or before.profile,
        before.settings + tuple(settings or ()),
        before.ask and not no_input,
    )


@contextmanager
def facade() -> Iterator[Control]:
    """The facade alone. Closing it never touches a run."""
    control = places.open_control()
    try:
        yield control
    finally:
        control.close()


@contextmanager
def opened(choice: Choice, output: Output, *, smoke: bool = False) -> Iterator[Control]:
    """The facade with the campaign open and its host reached. Raises FindingError."""
    with facade() as control:
        open_campaign(control, choice, output, smoke=smoke)
        yield control


def open_campaign(
    control: Control, choice: Choice, output: Output, *, smoke: bool = False, fingerprint: str | None = None
) -> bool:
    """Open the campaign and reach its host; answers whether an unknown host key was saved for that.

    It is when it is the one of ``fingerprint``, or, without one, when the operator says yes on the terminal. Raises
    FindingError.
    """
    from eagle3_backend.control.commands import Open, TrustHostKey

    request = Open(places.find_profile(choice.profile), choice.settings, smoke)
    opening = control.submit(request)
    if wait([opening], PATIENCE_SECONDS).not_done:
        host = clean(control.snapshot().host.name) or "the host"
        output.say(f"Still reaching {host}; a first contact brings the agent there.")
    try:
        opening.result()
        return False
    except FindingError as problem:
        unknown = next((finding for finding in problem.findings if finding.code == "ssh_host_key_unknown"), None)
        if unknown is None or not _is_right_key(unknown, problem, choice, output, fingerprint):
            raise
    control.submit(TrustHostKey(save=True)).result()
    control.submit(request).result()
    return True


def _is_right_key(
    unknown: Finding, problem: FindingError, choice: Choice, output: Output, fingerprint: str | None
) -> bool:
    if fingerprint is not None:
        return bool(unknown.actual == fingerprint)
    if not (choice.ask and sys.stdin.isatty()):
        return False
    output.findings(problem.findings)
    return typer.confirm("Is this the right key? Save it and go on", err=True)


@contextmanager
def at_work(
    context: typer.Context,
    profile: str | None,
    settings: list[str] | None,
    no_input: bool,
    *,
    as_json: bool = False,
    smoke: bool = False,
) -> Iterator[tuple[Control, Output]]:
    """Body of a command about one campaign, from its shared options: the facade with it open, and the output."""
    choice = choose(context, profile, settings, no_input)
    with command(as_json, choice.options, smoke) as output, opened(choice, output, smoke=smoke) as control:
        yield control, output
