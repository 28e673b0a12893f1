"""`engines --host`: what the engines that are installed on a host can be asked."""

from __future__ import annotations

from typing import Any

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_tui.commands.campaign import Choice, opened
from eagle3_tui.commands.hosts import choose_by_host, require_host
from eagle3_tui.commands.output import Output, clean, command

ENGINES = ("vllm", "sglang")
CHOICES_SHOWN = 6
WIDTH = 100
"""Characters of an option's text in the list; --json has all of it."""


def show(choice: Choice, host: str, search: str, as_json: bool) -> None:
    """Ask every engine environment of the host's profile, and print its options."""
    from eagle3_backend.control.commands import EngineOptions

    choice = choose_by_host(choice, host)
    with command(as_json, choice.options) as output:
        require_host(choice, host)
        asked = [name for name in ENGINES if name in choice.load().environments]
        if not asked:
            raise FindingError(
                error(
                    "environment_missing",
                    f"The profile '{choice.profile}' names no environment of an engine.",
                    path="environments",
                    expected=list(ENGINES),
                    fix="Add [environments.vllm] or [environments.sglang].",
                )
            )
        output.say(f"Asking {', '.join(asked)}; an engine that was not asked before is imported for it.")
        with opened(choice, output) as control:
            answers = [control.submit(EngineOptions(name)).result() for name in asked]
        for answer in answers:
            output.findings(Finding.from_json(entry) for entry in answer["findings"])
        _give(output, host, search, answers)


def _give(output: Output, host: str, search: str, answers: list[dict[str, Any]]) -> None:
    from eagle3_backend.control.engine_options import surface_of

    engines, lines = {}, []
    for answer in answers:
        found = surface_of(answer).search(search)
        names = {option.name for _, option in found}
        kept = {part: [entry for entry in answer[part] if entry["names"][0] in names] for part in ("flags", "fields")}
        engines[answer["engine"]] = {**answer, **kept}
        mark = ", as packaged with this program" if answer["packaged"] else ""
        lines.append(f"{answer['engine']} {answer['version']}{mark}: {len(found)} options")
        width = max((len(name) for name, _ in found), default=0)
        lines += [clean(f"  {name:<{width}}  {_about(option)}").rstrip() for name, option in found]
    output.give({"host": host, "engines": engines}, "\n".join(lines))


def _about(option: Any) -> str:
    """Kind, default and choices, then as much of the text as fits."""
    choices = [str(choice) for choice in option.choices]
    kinds = "|".join(choices[:CHOICES_SHOWN]) + ("|..." if len(choices) > CHOICES_SHOWN else "")
    words = [kinds or "|".join(option.kinds) or "value"]
    if option.default not in (None, "", False):
        words.append(f"[{str(option.default)[:24]}]")
    if option.deprecated:
        words.append("deprecated")
    text = " ".join([*words, option.doc])
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
