"""What a start is told about before it is confirmed: GPUs, fingerprint, command, and what stands against it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from eagle3_backend.control.snapshot import Machine
from eagle3_backend.findings import Finding, Severity
from eagle3_tui.text import clean, shorten
from eagle3_tui.theme import Look
from eagle3_tui.widgets.facts import pairs_lines, wrapped
from eagle3_tui.widgets.gauges import gpu_words

SHOWN = 4
"""Findings that are shown at most, the worst first; a refused start shows them all."""
COMMAND = 3
"""Lines of a command at most."""


ENVIRONMENT = re.compile(r"^(?:\w+=\S*\s+)+")
"""Variables before a command: they are in the serve screen's launch line."""


def preview_lines(answer: Mapping[str, Any], machine: Machine, look: Look, room: int) -> list[Text]:
    """From an answer to `DryRun`."""
    stages = answer.get("stages") or ()
    facts = []
    if stages:
        last = stages[-1]
        facts.append(("parameters", f"{clean(last.get('fingerprint'), 16)} of {clean(last.get('stage'), 40)}"))
    if machine.gpus:
        facts.append(("GPUs", gpu_words(machine)))
    lines = pairs_lines(facts, look, room)
    launches = answer.get("launches") or {}
    if launches:
        name = [*launches][-1]
        words = f"{clean(name, 40)}: {ENVIRONMENT.sub('', clean(launches[name]['line'], 2000))}"
        lines += wrapped(look, shorten(words, COMMAND * (room - 4), look.glyph("more")), room, "dim", "  ")
    return [*lines, *_findings(answer, look, room)]


def _findings(answer: Mapping[str, Any], look: Look, room: int) -> list[Text]:
    found = [Finding.from_json(one) for one in answer.get("findings") or ()]
    found = [one for one in found if one.severity is not Severity.INFO]
    if not found:
        return [look.line((f"{look.glyph('ok')} nothing stands against it", "good"))]
    found.sort(key=lambda one: one.severity is not Severity.ERROR)
    lines = []
    for one in found[:SHOWN]:
        glyph, role = look.severity(one.severity.value)
        lines += wrapped(look, f"{glyph} {clean(one.code, 60)}: {clean(one.message, 300)}", room, role)
    if len(found) > SHOWN:
        lines += wrapped(look, f"and {len(found) - SHOWN} more", room, "dim")
    return lines
