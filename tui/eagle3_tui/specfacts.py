"""What an attempt was started with, from its spec.json: the command, its environment, and what it read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from eagle3_tui.text import clean
from eagle3_tui.theme import Look
from eagle3_tui.widgets.facts import pairs_lines, wrapped

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY", re.IGNORECASE)
"""Names whose values are never shown. Secrets do not travel in a spec; somebody may have put one there by hand."""


def spec_lines(spec: Mapping[str, Any], look: Look, width: int) -> list[Text]:
    """From an answer to `Specification`; what the host says is shown as far as it has the shape of a spec."""
    engine = _mapping(spec.get("engine"))
    lines = [*_command(spec, look, width, "command"), *_command(engine, look, width, "engine")]
    pairs = [("environment", clean(spec.get("environment") or "-", 80))]
    if gpus := spec.get("gpus"):
        pairs.append(("GPUs", clean(gpus if isinstance(gpus, str) else ", ".join(map(str, _list(gpus))), 400)))
    pairs.append(("payload", clean(spec.get("payload") or "-", 12)))
    pairs.append(("version", f"{clean(spec.get('stage_version', '-'), 12)} of the stage"))
    if accepted := _list(spec.get("accepted")):
        pairs.append(("accepted", clean(", ".join(map(str, accepted)), 300)))
    lines += pairs_lines(pairs, look, width)
    for name, value in {**_mapping(spec.get("env")), **_mapping(engine.get("env"))}.items():
        told = "(not shown)" if _SECRET.search(str(name)) else clean(value, 400)
        lines += wrapped(look, f"{clean(name, 80)}={told}", width, "text", "  ")
    inputs = [(clean(name, 40), clean(value, 80)) for name, value in _mapping(spec.get("input_fingerprints")).items()]
    lines += [look.line(("  inputs, by fingerprint", "dim")), *pairs_lines(inputs or [("none", "")], look, width)]
    if spec.get("output"):
        lines += wrapped(look, f"output {clean(spec['output'], 400)}", width, "dim", "  ")
    return lines


def _command(part: Mapping[str, Any], look: Look, width: int, name: str) -> list[Text]:
    words = _list(part.get("argv"))
    if not words:
        return []
    # An option is read best where it begins a word of its own, so the line is only wrapped, never cut.
    return wrapped(look, f"{name} {clean(shlex.join(map(str, words)), 4000)}", width, "text", "  ")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
