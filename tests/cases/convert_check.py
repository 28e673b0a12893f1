"""Convert a drafter's config to the other layout, or there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.drafter.capabilities import ENGINES
from eagle3_backend.drafter.convert import convert_config
from eagle3_backend.drafter.diff import compare, summary
from eagle3_backend.drafter.reading import FLAT, NESTED


def run(folder: Path, given: dict[str, Any]) -> Answer:
    config, target = (json.loads((folder / given[name]).read_text("utf-8")) for name in ("input", "target_config"))
    engine = given.get("engine", "both")
    there = NESTED if given["direction"] == "flat_to_nested" else FLAT
    asked = {"target": target, "engines": ENGINES if engine == "both" else (engine,)}
    if given["direction"] != "round_trip":
        conversion = convert_config(config, there, verifier=given.get("verifier"), **asked)
        return Answer(conversion.findings, {"output": dict(_flattened(conversion.config))})
    nested = convert_config(config, NESTED, target, verifier=given.get("verifier"))
    back = convert_config(nested.config, FLAT, **asked)
    differences = summary(compare(config, back.config, target))["effective_differences"]
    values = {f"nested.{path}": value for path, value in _flattened(nested.config)}
    return Answer(nested.findings + back.findings, {**values, "effective_differences": differences})


def _flattened(value: Any, path: str = ""):
    """Every value of a config by its dotted path, objects and lists included."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flattened(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _flattened(inner, f"{path}[{index}]")
