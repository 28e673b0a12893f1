"""Commands that only read: status, logs, metrics, doctor."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from eagle3_backend.findings import FindingError
from eagle3_backend.states import RunState
from eagle3_tui.commands.campaign import (
    JsonOption,
    NoInputOption,
    ProfileOption,
    SettingsOption,
    SmokeOption,
    StageArgument,
    at_work,
    choose,
    opened,
)
from eagle3_tui.commands.output import REFUSED, Output, clean, command, duration, exit_code

if TYPE_CHECKING:
    from eagle3_backend.control import Control

AttemptOption = Annotated[int, typer.Option(min=0, help="Attempt by number; 0 is the newest.")]

LOOK_SECONDS = 0.5
STRETCH = 256 * 1024
"""Bytes of a log that are asked for at a time."""


def status(
    context: typer.Context,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Where every stage of the campaign stands."""
    from eagle3_backend.control.commands import Status

    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        answer = control.submit(Status()).result()
        output.give(answer, _status_text(answer))


def _status_text(answer: dict[str, Any]) -> str:
    host = answer["host"]
    lines = [clean(f"{answer['campaign']} on {host['name']} ({host['link']}), workspace {answer['workspace']}")]
    for stage in answer["stages"]:
        words = [f"{stage['name']:<9}", f"{stage['state']:<9}"]
        if stage.get("outdated_by"):
            words.append("out of date: " + ", ".join(stage["outdated_by"]))
        elif stage.get("fresh"):
            words.append("fresh")
        if stage.get("attempt"):
            words.append(f"attempt {stage['attempt']}")
        if stage.get("total"):
            words.append(f"{100 * (stage.get('done') or 0) / stage['total']:.0f}%")
        if stage.get("elapsed") is not None:
            words.append(duration(stage["elapsed"]))
        if stage.get("blocked_by"):
            words.append("needs " + ", ".join(stage["blocked_by"]))
        if stage.get("remark"):
            words.append(stage["remark"])
        lines.append(clean("  ".join(words).rstrip()))
    others = [service for service in answer.get("services") or () if not service["planned"]]
    lines += [clean(f"serve      {service['state']:<9}  beside it: {service['run']}") for service in others]
    return "\n".join(lines)


def logs(
    context: typer.Context,
    stage: StageArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the attempt has ended.")] = False,
    tail: Annotated[int, typer.Option(min=0, help="Only the last lines; 0 prints all.")] = 0,
    attempt: AttemptOption = 0,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
) -> None:
    """The log of a stage, byte for byte."""
    with at_work(context, profile, settings, no_input, smoke=smoke) as (control, _):
        offset = _tail_offset(control, stage, attempt, tail) if tail else 0
        while True:
            # Looked at before reading: what was written until the attempt ended is then read for sure.
            view = control.snapshot().stage(stage)
            # Unknown is a lost link or an orphan: neither has ended.
            ended = view is None or not (view.state.is_active or view.state is RunState.UNKNOWN)
            offset = _copy_log(control, stage, attempt, offset, sys.stdout.buffer)
            if not follow or ended:
                return
            time.sleep(LOOK_SECONDS)


def _copy_log(control: Control, stage: str, attempt: int, offset: int, stream: BinaryIO) -> int:
    """Write the log from ``offset`` on to ``stream``; answers where it ends now."""
    for data in _pieces(control, stage, attempt, offset):
        stream.write(data)
        offset += len(data)
    stream.flush()
    return offset


def _tail_offset(control: Control, stage: str, attempt: int, lines: int) -> int:
    """Offset of the last ``lines`` lines."""
    size = _piece(control, stage, attempt, 0, 1)["size"]
    length = STRETCH
    while True:
        start = max(0, size - length)
        data = b"".join(_pieces(control, stage, attempt, start))
        # A last newline ends the last line; it begins no other.
        end = len(data) - 1 if data.endswith(b"\n") else len(data)
        for _ in range(lines):
            end = data.rfind(b"\n", 0, max(0, end))
            if end < 0:
                break
        if end >= 0 or start == 0:
            return start + end + 1
        length *= 2


def _pieces(control: Control, stage: str, attempt: int, offset: int) -> Iterator[bytes]:
    """The log from ``offset`` to its end, in the pieces that the host sends."""
    while True:
        answer = _piece(control, stage, attempt, offset, STRETCH)
        if not answer["data"]:
            return
        yield answer["data"]
        offset = answer["offset"] + len(answer["data"])
        if offset >= answer["size"]:
            return


def _piece(control: Control, stage: str, attempt: int, offset: int, length: int) -> dict[str, Any]:
    from eagle3_backend.control.commands import Logs

    answer: dict[str, Any] = control.submit(Logs(stage, attempt, offset, length)).result()
    return answer


def metrics(
    context: typer.Context,
    stage: StageArgument,
    names: Annotated[list[str] | None, typer.Option("--name", help="Only this series; repeatable.")] = None,
    attempt: AttemptOption = 0,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="One JSON object for each point.")] = False,
) -> None:
    """The metric series of a stage's attempt."""
    from eagle3_backend.control.commands import Metrics

    with at_work(context, profile, settings, no_input, as_json=as_json, smoke=smoke) as (control, output):
        answer = control.submit(Metrics(stage, attempt, tuple(names or ()))).result()
        if as_lines:
            for name, points in answer["series"].items():
                for step, value in points:
                    print(json.dumps({"name": name, "step": step, "value": value}, allow_nan=False))
            return
        output.give(answer, _metrics_text(answer["series"]))


def _metrics_text(series: dict[str, list[list[float | None]]]) -> str:
    rows = [
        f"{name:<32} {len(points):>7}  {points[-1][0]:g}  {points[-1][1]}" for name, points in series.items() if points
    ]
    return "\n".join([f"{'series':<32} {'points':>7}  last step and value", *map(clean, rows)])


def doctor(
    context: typer.Context,
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check the laptop, the link, the host and its workspace; each check that fails names its fix."""
    from eagle3_backend.control.commands import Doctor

    choice = choose(context, profile, settings, no_input)
    with command(as_json, choice.options) as output:
        checks = _laptop_checks()
        try:
            with opened(choice, output) as control:
                checks += control.submit(Doctor()).result()["checks"]
        except FindingError as problem:
            status = exit_code(problem.findings)
            area = "campaign" if status == REFUSED else "link"
            for finding in problem.findings:
                checks.append(_check(area, finding.code, "fail", finding.message, finding.fix))
            _give_checks(checks, output)
            raise typer.Exit(status) from None
        _give_checks(checks, output)
        if any(check["level"] == "fail" for check in checks):
            raise typer.Exit(REFUSED)


def _give_checks(checks: list[dict[str, Any]], output: Output) -> None:
    lines = []
    for check in checks:
        lines.append(clean(f"{check['level']:<4}  {check['area']:<8}  {check['name']}: {check['message']}"))
        if check.get("fix") and check["level"] != "ok":
            lines.append(clean(f"      next: {check['fix']}"))
    output.give({"checks": checks}, "\n".join(lines))


def _check(area: str, name: str, level: str, message: str, fix: str = "") -> dict[str, Any]:
    return {"area": area, "name": name, "level": level, "message": message, "fix": fix}


def _laptop_checks() -> list[dict[str, Any]]:
    """What the panel needs of this terminal."""
    columns, rows = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or "").lower()
    small = columns < 60 or rows < 16
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    return [
        _check("laptop", "python", "ok", sys.version.split()[0]),
        _check("laptop", "terminal", "warn" if small else "ok", f"{columns}x{rows}", "The panel needs 60x16."),
        _check(
            "laptop",
            "encoding",
            "ok" if encoding.startswith("utf") else "warn",
            encoding or "unknown",
            "Set a UTF-8 locale (LANG=C.UTF-8), or start the panel with --ascii.",
        ),
        _check("laptop", "colours", "ok", os.environ.get("COLORTERM") or os.environ.get("TERM") or "no terminal"),
        # No warning: without SSH, or with keys that have no passphrase, nothing is missing.
        _check("laptop", "ssh agent", "ok", agent or "none: keys with a passphrase need one (ssh-add)"),
    ]
