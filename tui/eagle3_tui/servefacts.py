"""The service in words: its launch line with the reason for each value, its health steps, acceptance by position."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from eagle3_backend.control.snapshot import Event, StageView
from eagle3_backend.engines import startup
from eagle3_backend.engines.launch import with_drafter
from eagle3_backend.engines.plan import MANAGED, explained, of_operator, shell_line
from eagle3_backend.findings import Finding
from eagle3_backend.states import RunState
from eagle3_tui.serveacts import service_words
from eagle3_tui.text import clean, number, span
from eagle3_tui.theme import Look
from eagle3_tui.widgets.facts import wrapped

READY = "ready"
FORMULA = "acceptance length = 1 + accepted / drafts, tokens a verify step; 1.00: no draft was accepted"
BY_POSITION = "position k: share of all drafts whose k-th token was accepted, so only where those before it were"
OPEN_PLACES = {
    "{model}": "the directory of the target's facts",
    "{config}": "a file with the API key that only its owner can read",
    "{cores}": "the host's cores",
    "{cores-1}": "the host's cores less one",
}


@dataclass(frozen=True)
class Launch:
    """What serve would execute: the engine's plan with the drafter, and what stands against it."""

    plan: Mapping[str, Any] | None
    findings: tuple[Finding, ...]

    @property
    def line(self) -> str:
        return shell_line(self.plan) if self.plan else ""


def launch_of(answer: Mapping[str, Any]) -> Launch:
    """From the answer to `DryRun("serve")`."""
    findings = tuple(Finding.from_json(data) for data in answer["findings"])
    spec = next((spec for spec in answer["stages"] if spec["stage"] == "serve"), None)
    if spec is None or not spec.get("engine"):
        return Launch(None, findings)
    parameters = spec["parameters"]
    drafter = f"{spec['inputs']['drafter']}/{parameters['layout']}"
    plan = with_drafter(spec["engine"], drafter, int(parameters["depth"]))
    return Launch(of_operator(plan, parameters.get("options") or {}), findings)


def launch_lines(launch: Launch, look: Look, width: int) -> list[Text]:
    """The command as it is executed, one value a line, the reason below it."""
    plan = launch.plan
    if plan is None:
        return [look.line(("no engine is planned for serve", "dim"))]
    rows = explained(plan)
    named = {name for name, _, _ in rows}
    head = []
    for word in plan["argv"]:
        if word in named or word.startswith("--"):
            break
        head.append(word)
    lines: list[Text] = []
    program = False
    for name, value, reason in rows:
        flag = name.startswith("--")
        if flag and not program:
            program = True
            lines += wrapped(look, clean(" ".join(head), 1000), width, "text bold")
        shown = name + ((" " if flag else "=") + value if value else "")
        lines += wrapped(look, clean(shown, 1000), width, "accent", "  ")
        lines += wrapped(look, clean(reason or "no reason is told", 600), width, "dim", "      ")
    line = launch.line
    places = [f"{place} {meaning}" for place, meaning in OPEN_PLACES.items() if place in line]
    if places:
        lines += [Text(""), *wrapped(look, f"Filled in on the host: {'; '.join(places)}.", width, "dim")]
    return lines


def option_rows(launch: Launch) -> list[tuple[str, str]]:
    """Flags and variables of the plan with their values, as they can be edited."""
    return [(name, value) for name, value, _ in explained(launch.plan) if name not in MANAGED] if launch.plan else []


def other_lines(services: Sequence[Mapping[str, Any]], look: Look, width: int) -> list[Text]:
    """Endpoints of other parameters: what each is, and where it is reached from here."""
    lines = []
    for service in services:
        address = service.get("base_url") or "no address yet"
        lines.append(look.line((clean(address, 200), "accent"), (f"  {look.remote(service_words(service))}", "text")))
        lines += wrapped(look, clean(service["run"], 200), width, "dim", "  ")
    return lines


def health(view: StageView | None, events: Sequence[Event]) -> list[tuple[float, str, bool]]:
    """The steps of the newest attempt as its journal tells them: when, what, and whether the service was ready then."""
    if view is None or not view.attempt:
        return []
    told = [event for event in events if event.source == "serve" and event.kind in ("state", "note")]
    begun = [place for place, event in enumerate(told) if event.data.get("state") == RunState.STARTING.value]
    steps = told[begun[-1] :] if begun else told
    return [(event.at, event.text, event.data.get("state") == READY) for event in steps[-12:]]


def is_ready(view: StageView | None, events: Sequence[Event]) -> bool:
    """Whether the service that is at work has answered a real completion."""
    return view is not None and view.state is RunState.RUNNING and any(ready for _, _, ready in health(view, events))


def health_lines(steps: Sequence[tuple[float, str, bool]], at_work: bool, look: Look, width: int) -> list[Text]:
    """Each step with its time; the last one is what goes on now, unless it is all over."""
    lines = []
    for number_, (at, text, ready) in enumerate(steps):
        last = number_ + 1 == len(steps)
        glyph, role = (look.glyph("run"), "active") if last and at_work and not ready else (look.glyph("ok"), "good")
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        told = wrapped(look, clean(text, 400), width - 12)
        first = told[0] if told else Text("")
        lines.append(look.line((f"{clock} ", "dim"), (f"{glyph} ", role)).append_text(first))
        lines += [Text(" " * 11, end="").append_text(line) for line in told[1:]]
    return lines


def acceptance_lines(view: StageView | None, look: Look, width: int) -> list[Text]:
    """Acceptance by position as bars, with the counts and the formula that it comes from."""
    metrics = view.metrics if view is not None else {}
    shares: list[float] = []
    while (share := metrics.get(f"acceptance_at_{len(shares) + 1}")) is not None:
        shares.append(share)
    if view is None or "acceptance_length" not in metrics:
        words = "waiting for the first drafted request" if view and view.state.is_active else "none was measured yet"
        return [look.line((words, "dim"))]
    cells = max(8, min(30, width - 14))
    lines = [look.line("length ", (f"{metrics['acceptance_length']:.2f}", "accent bold"), (_counts(metrics), "dim"))]
    for place, share in enumerate(shares, start=1):
        full = round(min(1.0, max(0.0, share)) * cells)
        bar = ((look.glyph("full") * full, "active"), (look.glyph("empty") * (cells - full), "line"))
        lines.append(look.line(f"{place:>2} ", (f"{share:.2f} ", "text"), *bar))
    formula = [FORMULA, *([BY_POSITION] if shares else [])]
    for words in formula:
        lines += wrapped(look, words, width, "dim")
    lines += wrapped(look, "From the newest 5 s window in which the engine drafted.", width, "dim")
    return [*lines, *_log_lines(metrics, look, width)]


def _log_lines(metrics: Mapping[str, float], look: Look, width: int) -> list[Text]:
    """The second source: what the engine's own log adds up to since its start."""
    if "log_length" not in metrics:
        return []
    agrees = metrics.get("log_agrees")
    verdict = "; it cannot be held against the counters" if agrees is None else ", and the counters agree"
    if agrees == 0.0:
        verdict = ", but the counters do not agree"
    told = f"The engine's log since its start: length {metrics['log_length']:.2f} over {metrics['log_windows']:.0f} "
    return wrapped(look, f"{told}windows{verdict}.", width, "warn" if agrees == 0.0 else "dim")


def traffic_lines(view: StageView | None, look: Look, width: int) -> list[Text]:
    """Requests and speed of the newest window."""
    metrics = view.metrics if view is not None else {}
    if "tokens_per_second" not in metrics:
        return []
    told = f"{number(metrics['tokens_per_second'])} tokens/s, {number(metrics.get('requests_running'))} requests "
    told += f"running, {number(metrics.get('requests_waiting'))} waiting"
    return wrapped(look, told, width)


def start_lines(view: StageView | None, look: Look, width: int) -> list[Text]:
    """How long the start took, from the key to drafted tokens, and what that is made of which is not the engine's."""
    launch = view.launch if view is not None else {}
    if not launch:
        return []
    parts = ", ".join(f"{name} {launch[name]:.1f}" for name in startup.PARTS)
    told = startup.words(launch)
    lines = wrapped(look, f"{told[0].upper()}{told[1:]}.", width)
    return [*lines, *wrapped(look, f"Everything else, in seconds: {parts}.", width, "dim")]


def address_lines(
    endpoint: Mapping[str, Any] | None, refused: str, state: str, look: Look, width: int, host: str
) -> list[Text]:
    """Where the service is reached from here, or why not yet."""
    if endpoint is None:
        return wrapped(look, refused or state, width, "dim")
    model = f"  model {clean(endpoint['model'], 60)}"
    lines = [look.line((clean(endpoint["base_url"], 200), "accent bold"), (look.remote(model), "text"))]
    words = (
        f"OpenAI's API, through the tunnel of this panel to {host}; it is there while the panel is open. "
        "The server itself listens on the host's own loopback address alone. y copies a curl line with the key."
    )
    return [*lines, *wrapped(look, words, width, "dim")]


def curl_line(endpoint: Mapping[str, Any]) -> str:
    """A request that can be pasted into a shell."""
    body = f'{{"model": "{endpoint["model"]}", "messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 64}}'
    return (
        f"curl -s {shlex.quote(str(endpoint['base_url']) + '/chat/completions')} "
        f"-H {shlex.quote('Authorization: Bearer ' + str(endpoint['api_key']))} "
        f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )


def _counts(metrics: Mapping[str, float]) -> str:
    drafts, accepted = metrics.get("drafts"), metrics.get("accepted")
    return "" if drafts is None or accepted is None else f" = 1 + {accepted:.0f} accepted / {drafts:.0f} drafts"


def age(since: float, now: float) -> str:
    """How old a plan is, in minutes: nothing on a screen has to move for less."""
    minutes = int(now - since) // 60
    return f"planned {span(60.0 * minutes)} ago" if minutes else ""
