"""What an operator does with endpoints: swap one, start another beside it, edit an option and keep what was edited."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_backend.control.commands import Results, Start, Stop, Swap, WriteProfile
from eagle3_backend.findings import FindingError
from eagle3_tui.text import clean

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

DEPTHS = (1, 2, 3, 4, 5)
TYPED = "?"
"""The choice of a drafter whose directory is typed."""
OPTIONS = "serve.options."

Chosen = Callable[[str], None]


def choose(panel: Panel, heading: str, then: Chosen) -> None:
    """Let the operator pick a setting that differs from the present one: layout, depth, engine or drafter."""
    from eagle3_tui.screens.choose import ChooseDialog

    def picked(value: str | None) -> None:
        if value == TYPED:
            # Once the dialog is gone: the line is typed on the screen below it.
            panel.call_after_refresh(panel.ask_line, "drafter ", "", typed, "a drafter's directory on the host")
        elif value:
            then(value)

    def typed(text: str) -> None:
        if text.strip():
            # From the panel's own queue: a dialog's answer goes to whoever opened it, and the line is gone by then.
            panel.call_later(then, f"export.adopt={text.strip()}")

    def offer(answer: Mapping[str, Any]) -> None:
        now = panel.source.parameters("serve")
        found = [*_own(now), *_drafters(answer["artifacts"], now.get("layout", "flat")), _typed()]
        panel.push_screen(ChooseDialog(heading, found), picked)

    panel.inquire(Results("export"), offer, lambda problem: offer({"artifacts": ()}))


def _own(now: Mapping[str, Any]) -> list[Any]:
    from eagle3_tui.screens.choose import Choice

    layout = "nested" if now.get("layout") == "flat" else "flat"
    engine = "sglang" if now.get("engine") == "vllm" else "vllm"
    depths = [depth for depth in DEPTHS if depth != now.get("depth")]
    return [
        Choice(f"serve.layout={layout}", f"layout {layout}", "the same drafter, as its other directory says it"),
        *(Choice(f"serve.depth={depth}", f"depth {depth}", f"tokens drafted a step: {depth}") for depth in depths),
        Choice(f"serve.engine={engine}", f"engine {engine}", f"in the profile's environment '{engine}'"),
    ]


def _drafters(artifacts: Sequence[Mapping[str, Any]], layout: str) -> list[Any]:
    from eagle3_tui.screens.choose import Choice

    others = [one for one in artifacts if not one.get("planned")]
    return [
        Choice(f"export.adopt={one['path']}/{layout}", f"drafter {one['fingerprint']}", one["path"]) for one in others
    ]


def _typed() -> Any:
    from eagle3_tui.screens.choose import Choice

    return Choice(TYPED, "another drafter", "by its directory on the host, which is typed")


def swap(panel: Panel, run: str, setting: str) -> None:
    """Have the host put the other one in the endpoint's place; asks first."""
    from eagle3_tui.screens.dialogs import ConfirmDialog

    def go_on(sure: bool | None) -> None:
        if sure:
            panel.ask(Swap((setting,), run), f"swapping: {setting}")
            panel.notice("asking the host to end the endpoint and start the other one")

    words = (
        f"{clean(setting, 200)}: the host ends the endpoint and starts the other one in its place; nothing serves for "
        "about as long as an engine takes to start. What stands against the new one is looked for before anything is "
        "stopped; if it still fails before it serves, the host starts the old one again. The panel may be closed then."
    )
    panel.push_screen(ConfirmDialog("Swap the endpoint", words, "swap"), go_on)


def beside(panel: Panel, setting: str) -> None:
    """Start another endpoint with this setting; the one that is at work goes on."""
    panel.settle((setting,), lambda: panel.ask(Start("serve"), f"starting another endpoint: {setting}"))


def end(panel: Panel, others: Sequence[Mapping[str, Any]]) -> None:
    """Choose an endpoint of other parameters, and stop it."""
    from eagle3_tui.screens.choose import Choice, ChooseDialog
    from eagle3_tui.screens.dialogs import StopDialog

    def picked(run: str | None) -> None:
        if run:
            panel.push_screen(
                StopDialog(run), lambda sure: panel.ask(Stop("serve", run), f"asked {run} to end") if sure else None
            )

    choices = [Choice(str(one["run"]), str(one["run"]), service_words(one)) for one in others]
    panel.push_screen(ChooseDialog("End an endpoint", choices, "no other endpoint is at work"), picked)


def service_words(service: Mapping[str, Any]) -> str:
    """An endpoint in a few words."""
    told = [str(service[name]) for name in ("engine", "layout") if service.get(name)]
    told += [f"depth {service['depth']}"] if service.get("depth") else []
    return " ".join([*told, "ready" if service.get("ready") else str(service.get("state", ""))])


def option_setting(text: str) -> str | None:
    """The setting that a typed option means: "--max-num-seqs 64", "--flag", "--flag false", "NAME=value"."""
    match = re.fullmatch(r"\s*(--[\w.-]+|\w+)(?:(?:\s*=\s*|\s+)(.+?))?\s*", text, re.ASCII)
    if match is None or (match[2] is None and not match[1].startswith("--")):
        return None
    return f"{OPTIONS}{match[1]}={match[2] or 'true'}"


def edits_of(settings: Sequence[str]) -> dict[tuple[str, ...], Any]:
    """What settings write into a profile, by the path of the key; the later one of two counts."""
    import tomllib

    found: dict[tuple[str, ...], Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        parts = name.strip().split(".", 2)
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        found["stages", *parts] = value
    return found


def write(panel: Panel) -> None:
    """Write what was edited and swapped here into the profile; its comments stay."""
    if not panel.edits:
        panel.notice("nothing was edited here that is not in the profile")
        return
    from eagle3_tui.places import own_profile
    from eagle3_tui.screens.dialogs import ConfirmDialog

    path = panel.opened.profile
    own = own_profile(path)
    names = ", ".join(f"{'.'.join(key[1:])} = {json.dumps(value)}" for key, value in edits_of(panel.edits).items())
    words = f"{clean(names, 600)}. What is at work goes on as it was started. "
    if own != path:
        words += "A shipped profile stays as it is: the change goes to your own copy of it. "
    dialog = ConfirmDialog("Save the profile", words + f"{clean(own, 300)} is written.", "save")

    def go_on(sure: bool | None) -> None:
        if sure:
            panel.run_worker(_save(panel, path, own), group="save")

    panel.push_screen(dialog, go_on)


async def _save(panel: Panel, path: Path, own: Path) -> None:
    from eagle3_tui.screens.dialogs import MessageDialog

    try:
        before, text = await asyncio.to_thread(_texts, path, own, panel.edits)
        command = WriteProfile(own, text, before)
        written = await asyncio.wrap_future(panel.source.submit(command))
    except FindingError as problem:
        panel.push_screen(MessageDialog("Not saved", problem.findings))
        return
    panel.written(Path(str(written)))


def _texts(path: Path, own: Path, settings: Sequence[str]) -> tuple[str, str]:
    """The text that is replaced (empty: a new file), and the one that takes its place. Raises FindingError."""
    from eagle3_tui import profileform

    saved = text = profileform.read(path)
    for key, value in edits_of(settings).items():
        text = profileform.with_value(text, key, value)
    if own != path:
        return "", profileform.with_whole_paths(text, path.parent)
    return saved, text
