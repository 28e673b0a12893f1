"""What a chain would execute, as a shell script that does just that."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from eagle3_backend.engines.plan import Plan, explained, shell_line
from eagle3_backend.pipeline.stages import STAGES

_END = "END_OF_SPEC"


def render(
    campaign: str,
    host: str,
    workspace: str,
    payload: str,
    specs: Sequence[Mapping[str, Any]],
    launches: Mapping[str, Plan],
) -> str:
    """The script for these specs, without their ``then``; ``payload`` is its folder on the host. ``launches`` are the
    engines with a drafter, by stage."""
    lines = [
        "#!/bin/sh",
        f"# {_comment(campaign)} on {_comment(host)}: what each stage executes. A supervisor on the host does this,",
        "# keeps the log, and starts the next stage when the one before is done.",
        "set -eu",
        f"export PYTHONPATH={shlex.quote(payload)} PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1",
    ]
    for spec in specs:
        lines += ["", *_stage(workspace, spec, launches.get(spec["stage"]))]
    return "\n".join(lines) + "\n"


def _stage(workspace: str, spec: Mapping[str, Any], launch: Plan | None) -> list[str]:
    directory = f"{workspace}/.eagle3/runs/{spec['run']}/1"
    lines = [f"# {spec['stage']}: {STAGES[str(spec['stage'])].title}"]
    engine = spec.get("engine")
    if launch:
        lines += ["# It starts its engine with the drafter on a free port of the host:"]
        lines += [f"#   {_comment(shell_line(launch))}", "# The reasons:"]
        lines += [
            f"#   {_comment(f'{name} {value}'.strip())}: {_comment(why)}" for name, value, why in explained(launch)
        ]
    elif engine:
        lines += ["# It starts its engine on a free port of the host, with what the stage adds:"]
        lines += [f"#   {_comment(shell_line(engine))}"]
    brought = [path for paths in spec["inputs"].values() if isinstance(paths, list) for path in paths]
    if brought:
        lines += ["# A start brings these files from the laptop first:", *(f"#   {_comment(path)}" for path in brought)]
    text = json.dumps(spec, indent=1, sort_keys=True, ensure_ascii=False)
    lines += [
        f"mkdir -p {shlex.quote(directory)}",
        f"cat > {shlex.quote(directory + '/spec.json')} <<'{_END}'",
        text,
        _END,
    ]
    argv = [str(word).replace("{run_directory}", directory) for word in spec["argv"]]
    return [*lines, " ".join([*_assignments(spec.get("env") or {}), *map(shlex.quote, argv)])]


def _assignments(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={shlex.quote(str(value))}" for name, value in sorted(values.items())]


def _comment(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")
