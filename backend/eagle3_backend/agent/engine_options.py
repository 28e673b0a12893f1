"""Asks an engine's own environment what the engine can be asked, in a process of its own that imports it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List

from eagle3_backend.agent.frames import field
from eagle3_backend.engines.options import surface_key
from eagle3_backend.findings import FindingError, error

IDENTITY_SECONDS = 60.0
SURFACE_SECONDS = 240.0
"""Engines import for ten seconds where files are cached, and for minutes from a slow disk."""
ENGINES = ("vllm", "sglang")


def ask(request: Dict[str, Any]) -> Dict[str, Any]:
    """{"identity", "surface"} of the ``engine`` in the environment of ``python``.

    The surface is None where the engine is not installed, and where the asker has it already: ``known`` lists
    `surface_key` of every one that it has. ``identity_only`` asks for no surface, and the engine is not imported.
    Raises FindingError.
    """
    python, engine = field(request, "python", str), field(request, "engine", str)
    if engine not in ENGINES:
        raise FindingError(error("request_invalid", "This is no engine.", path="engine", expected=list(ENGINES)))
    identity = _run(python, engine, ["--identity"], IDENTITY_SECONDS)
    known = surface_key(identity) in field(request, "known", list, [])
    if known or identity["module"] is None or field(request, "identity_only", bool, False):
        return {"identity": identity, "surface": None}
    return {"identity": identity, "surface": _run(python, engine, [], SURFACE_SECONDS)}


def _run(python: str, engine: str, words: List[str], seconds: float) -> Dict[str, Any]:
    payload = str(Path(__file__).resolve().parents[2])
    command = [os.path.expanduser(python), "-m", "eagle3_backend.stages.option_surface", engine, *words]
    try:
        ended = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": payload, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds,
        )
    except OSError as problem:
        raise FindingError(
            error(
                "engine_missing",
                f"The environment of {engine} has no Python at {python}: {problem.strerror}.",
                path=f"environments.{engine}",
                actual=python,
                fix="Run setup, or correct the path in the profile.",
            )
        ) from problem
    except subprocess.TimeoutExpired as problem:
        raise FindingError(
            error(
                "engine_silent",
                f"{engine} did not tell its options within {seconds:.0f} s.",
                path=f"environments.{engine}",
                fix="Ask again: a second import is faster. A disk that hangs shows in doctor.",
            )
        ) from problem
    lines = ended.stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1])
        assert isinstance(answer, dict)
    except (IndexError, ValueError, AssertionError):
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise FindingError(
            error(
                "engine_options_unreadable",
                f"{engine} could not be asked for its options: {' '.join(said[-2:])[:400]}",
                path=f"environments.{engine}",
                actual=ended.returncode,
                fix="See whether the engine starts in this environment at all.",
            )
        ) from None
    return answer
