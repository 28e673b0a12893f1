"""`eagle3-tui`: bare it is the panel; subcommands are the same use cases without it.

Importing this loads neither Textual nor asyncssh nor pydantic; the code of a command comes when it is asked for.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated

import typer

from eagle3_backend.findings import FindingError, error
from eagle3_tui.commands.campaign import DEFAULT_PROFILE, Choice, NoInputOption, SettingsOption, choose, opened
from eagle3_tui.commands.output import command
from eagle3_tui.commands.table import Commands
from eagle3_tui.places import find_profile, user_settings

app = typer.Typer(
    name="eagle3-tui",
    cls=Commands,
    help="Control panel of an EAGLE-3 campaign: from a target model to a served drafter with measured acceptance.",
    epilog="Exit codes: 0 ok, 1 refused or a finding of severity error, 2 usage, 3 host unreachable, "
    "4 authentication or host key, 5 conflict, 6 a stage ended badly, 130 interrupted.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def panel(
    context: typer.Context,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            metavar="NAME|FILE",
            envvar="EAGLE3_PROFILE",
            help="A shipped profile by name, or a profile file.",
        ),
    ] = DEFAULT_PROFILE,
    set_: SettingsOption = None,
    no_input: NoInputOption = False,
    mock: Annotated[bool, typer.Option("--mock", help="The panel on made-up data; no host is touched.")] = False,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="The panel with plain ASCII drawing.")] = False,
    readonly: Annotated[bool, typer.Option("--readonly", help="The panel to look only: acting keys are off.")] = False,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="The panel without motion, redrawn every two seconds at most.")
    ] = False,
    keys: Annotated[bool, typer.Option("--keys", help="All keys of the panel as a table, and nothing else.")] = False,
) -> None:
    """Without a command: the panel."""
    context.obj = Choice(profile, tuple(set_ or ()), not no_input)
    if keys:
        from eagle3_tui.keymap import keys_table

        typer.echo(keys_table(), nl=False)
        raise typer.Exit
    if context.invoked_subcommand is None:
        with command():
            show_panel(context.obj, mock=mock, ascii_only=ascii_only, readonly=readonly, reduced=reduced)


@app.command()
def demo(context: typer.Context) -> None:
    """The whole campaign on this machine: in the panel, or headless where there is no terminal."""
    choice = choose(context)
    on_terminal = sys.stdout.isatty() and _has_screen()
    with command(not on_terminal, choice.options) as output:
        if on_terminal:
            show_panel(choice, autostart="bench")
        else:
            from eagle3_tui.commands import runs

            with opened(choice, output) as control:
                runs.run_through(control, "bench", output)


def show_panel(
    choice: Choice,
    *,
    autostart: str = "",
    mock: bool = False,
    ascii_only: bool = False,
    readonly: bool = False,
    reduced: bool = False,
) -> None:
    """Run the panel until the operator leaves it; runs go on on their hosts. Raises FindingError without a terminal."""
    if not _has_screen():
        raise FindingError(
            error(
                "terminal_missing",
                "The panel needs a terminal for its keys and its screen, and one that can move its cursor.",
                actual=os.environ.get("TERM"),
                fix="eagle3-tui status and eagle3-tui run work without one.",
            )
        )
    from eagle3_tui import configuration, keymap

    own = configuration.read(user_settings())
    keymap.rebind(own.keys)
    # Nothing that the start makes is garbage; the panel collects again from its first frame on.
    gc.disable()
    # Only now: widgets take their keys from the table when they are imported.
    from eagle3_tui.run_panel import run_panel

    status = run_panel(
        find_profile(choice.profile),
        choice.settings,
        autostart=autostart,
        mock=mock,
        ascii_only=ascii_only or not (sys.stderr.encoding or "").lower().startswith("utf"),
        readonly=readonly,
        own=own,
        reduced=reduced,
    )
    raise typer.Exit(status)


def _has_screen() -> bool:
    """Whether there is something to draw on. Textual reads keys from standard input and draws on standard error."""
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return sys.stdin.isatty() and sys.stderr.isatty() and not dumb


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
