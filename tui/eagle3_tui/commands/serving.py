"""`serve` and `endpoint`: an endpoint started, swapped, listed, and reached through tunnels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.engines import startup
from eagle3_tui.commands import runs
from eagle3_tui.commands.campaign import (
    AcceptOption,
    JsonOption,
    NoInputOption,
    ProfileOption,
    SettingsOption,
    SmokeOption,
    at_work,
)
from eagle3_tui.commands.output import CONFLICT, STAGE_ENDED_BADLY, Output, clean

if TYPE_CHECKING:
    from eagle3_backend.control import Control
    from eagle3_backend.control.snapshot import Started

LOOK_SECONDS = 0.5
SHOWN = ("base_url", "api_key", "model", "host_port", "engine", "layout", "depth", "drafter", "run")
"""What is told of an endpoint, in order."""

RunOption = Annotated[
    str, typer.Option("--run", metavar="RUN", help="An endpoint under other parameters, by its run (serve --list).")
]


def serve(
    context: typer.Context,
    swap: Annotated[
        bool, typer.Option("--swap", help="In the place of the endpoint that is at work, which the host ends.")
    ] = False,
    run_name: Annotated[str, typer.Option("--run", metavar="RUN", help="With --swap: the one to replace.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="Only tell which endpoints are at work.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return once it is ready, without a tunnel.")] = False,
    accept: AcceptOption = None,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Serve the drafter and hold a tunnel to it; with other settings beside what is served already, or --swap."""
    if run_name and not swap:
        raise typer.BadParameter("--run goes with --swap")
    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        if listed:
            answer = _services(control, tunnels=False)
            output.give(answer, "\n".join(map(_line, answer["services"])) or "no endpoint is at work")
            return
        started = _begin(control, swap, run_name, tuple(accept or ()))
        if started.already_running and not started.same_chain:
            output.say("Other work of this campaign is active on the host; stop it, or attach to it.")
            raise typer.Exit(CONFLICT)
        outcome = runs.watched(control, "serve", output)
        if not outcome.reached:
            runs.report(control, "serve", outcome, output, fresh=False, runs=started.runs)
        _hold(control, output, detach=detach)


def endpoint(
    context: typer.Context,
    run_name: RunOption = "",
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """A tunnel to the running `serve`: prints its address and key, and stays open until it is interrupted."""
    from eagle3_backend.control.commands import Endpoint

    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        answer = control.submit(Endpoint(run_name)).result()
        output.give(answer, "\n".join(clean(f"{name:<9} {value}") for name, value in answer.items()))
        output.say("The tunnel is open until ctrl-c. The engine goes on without it; end it: eagle3-tui stop serve")
        _wait(control, output, answer["run"])


def _begin(control: Control, swap: bool, run: str, accept: tuple[str, ...]) -> Started:
    """Start it, or put it in the place of another."""
    from eagle3_backend.control.commands import Start, Swap

    asked = _given()
    command = Swap((), run, accept, asked) if swap else Start("serve", accept=accept, asked=asked)
    started: Started = control.submit(command).result()
    return started


def _given() -> float:
    """When the command was given: the start of this process, monotonic seconds."""
    import psutil

    return time.monotonic() - max(0.0, time.time() - psutil.Process().create_time())


def _hold(control: Control, output: Output, *, detach: bool) -> None:
    """Tell the endpoint that was started, and those beside it; keep their tunnels until the interrupt."""
    services = _services(control, tunnels=not detach)["services"]
    if not services or not services[0]["planned"]:
        output.say("serve has ended.")
        raise typer.Exit(STAGE_ENDED_BADLY)
    planned, *others = services
    told = [f"{name:<9} {planned.get(name)}" for name in SHOWN if planned.get(name) is not None]
    if launch := planned.get("launch"):
        told.append(f"{'start':<9} {startup.words(launch)}")
    text = [*map(clean, told), *(f"beside    {_line(each)}" for each in others)]
    output.give({**planned, "others": others}, "\n".join(text))
    if detach:
        output.say("It serves on; a tunnel to it: eagle3-tui endpoint")
        return
    output.say("The tunnel is open until ctrl-c. The engine goes on without it; end it: eagle3-tui stop serve")
    _wait(control, output, planned["run"])


def _wait(control: Control, output: Output, run: str) -> None:
    """Return never: leaves when the endpoint ends, or by the interrupt."""
    while True:
        snapshot = control.snapshot()
        if snapshot.stages and all(service.run != run for service in snapshot.services):
            output.say("serve has ended.")
            raise typer.Exit(STAGE_ENDED_BADLY)
        time.sleep(LOOK_SECONDS)


def _services(control: Control, *, tunnels: bool) -> dict[str, Any]:
    from eagle3_backend.control.commands import Services

    answer: dict[str, Any] = control.submit(Services(tunnels)).result()
    return answer


def _line(service: dict[str, Any]) -> str:
    """One endpoint on one line."""
    words = [service["run"], "ready" if service["ready"] else service["state"]]
    words += [f"{name} {service[name]}" for name in ("engine", "layout", "depth") if service.get(name) is not None]
    words.append(service.get("base_url") or f"host port {service.get('host_port', 'not known yet')}")
    return clean("  ".join(map(str, words)))
