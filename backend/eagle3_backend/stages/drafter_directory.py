"""The drafter directory that an engine is about to be given: looked at before half a minute of start is spent on it."""

from __future__ import annotations

import json
from pathlib import Path

from eagle3_backend.drafter.tensorfile import read_header
from eagle3_backend.findings import Finding, FindingError, error


def check_drafter(directory: Path, depth: int) -> None:
    """Raise FindingError unless config and weights are there and whole, and ``depth`` is at least one draft token."""
    if depth < 1:
        raise FindingError(
            error(
                "depth_invalid",
                "A drafter proposes at least one token.",
                path="depth",
                expected=">= 1",
                actual=depth,
            )
        )
    if not directory.is_dir():
        raise FindingError(
            error(
                "drafter_missing",
                f"There is no drafter directory '{directory.name}' in the drafter artifact.",
                path=str(directory),
                expected="flat or nested",
                actual=directory.name,
                fix="Set the layout to flat or nested, or export again.",
            )
        )
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        read_header(directory / "model.safetensors")
    except (OSError, ValueError) as problem:
        raise FindingError(_unreadable(directory, str(problem))) from problem
    if not isinstance(config, dict):
        raise FindingError(_unreadable(directory, "config.json is no JSON object"))


def _unreadable(directory: Path, problem: str) -> Finding:
    return error(
        "drafter_unreadable",
        f"The drafter in '{directory.name}' cannot be read: {problem}",
        path=str(directory),
        expected="config.json and model.safetensors",
        fix="Export again, or adopt a whole directory with safetensors weights.",
    )
