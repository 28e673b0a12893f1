"""setup: the environments that a campaign names; adopted ones are verified, missing ones are built.

Runs under any Python ≥ 3.9 of the host, so this module uses the standard library alone. A virtual environment cannot be
moved, so it is built in place; a marker with the hash of its pins, written last, says that it is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.pipeline.environments import (
    ADOPTED_IMPORTS,
    MARKER,
    SETS,
    RequirementSet,
    directory_of,
    pin_hash,
    python_of,
    set_unknown,
)
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.environment_build import Build, Commands, broken, find_python

KEEP_FREE = 1000**3
"""Disk space that a build leaves free, bytes."""


def run(context: StageContext) -> None:
    """Make every environment of ``parameters.environments`` usable. Raises FindingError."""
    entries: dict[str, dict[str, str]] = context.parameters.environments
    workspace = str(context.workspace)
    to_build = {
        name: SETS[entry["set"]]
        for name, entry in entries.items()
        if not entry.get("python") and _known_set(name, entry) and not _is_whole(name, entry["set"], workspace)
    }
    commands = Commands(context)
    adopted = {name: _adopt(name, entry["python"], commands) for name, entry in entries.items() if entry.get("python")}
    for name, requirements in list(to_build.items()):
        # A directory without marker may still be whole: linked here by hand, or only the marker is lost.
        versions = _versions_if_usable(python_of(name, entries[name], workspace), requirements, commands)
        if versions is not None:
            del to_build[name]
            _mark(name, requirements, workspace, versions)
    _check_disk(context.workspace, to_build)
    _build_all(to_build, workspace, commands, context)
    built = {
        name: _described(name, entry["set"], workspace, name in to_build)
        for name, entry in entries.items()
        if name not in adopted
    }
    context.finish({"environments": {**adopted, **built}})


def _build_all(
    to_build: Mapping[str, RequirementSet], workspace: str, commands: Commands, context: StageContext
) -> None:
    """Every step of every build, with progress over all of them; each environment is marked when it is whole."""
    steps: list[tuple[str, Callable[[], None]]] = []
    for name, wanted in to_build.items():
        build = Build(Path(directory_of(name, wanted.name, workspace)), wanted, find_python(wanted, commands), commands)
        steps += build.steps()
        steps.append((f"{wanted.name}: whole", partial(_mark, name, wanted, workspace, build.versions)))
    for number, (title, step) in enumerate(steps):
        context.leave_if_asked()
        context.journal.progress(number, len(steps), "steps")
        context.journal.note(title)
        step()
    if steps:
        context.journal.progress(len(steps), len(steps), "steps")


def _known_set(name: str, entry: Mapping[str, str]) -> bool:
    """True, or FindingError for a set that is not known."""
    if entry.get("set") not in SETS:
        raise FindingError(set_unknown(name, entry.get("set", "")))
    return True


def _is_whole(name: str, set_name: str, workspace: str) -> bool:
    """The marker says so and the interpreter is there: no import, a second setup takes no time."""
    directory = Path(directory_of(name, set_name, workspace))
    return _marker(directory).get("pins") == pin_hash(SETS[set_name]) and os.access(directory / "bin/python", os.X_OK)


def _marker(directory: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((directory / MARKER).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _mark(name: str, requirements: RequirementSet, workspace: str, versions: dict[str, str]) -> None:
    path = Path(directory_of(name, requirements.name, workspace)) / MARKER
    write_json(path, {"set": requirements.name, "pins": pin_hash(requirements), "versions": versions})


def _check_disk(workspace: Path, to_build: Mapping[str, RequirementSet]) -> None:
    needed = sum(requirements.bytes_needed for requirements in to_build.values())
    free = shutil.disk_usage(workspace).free
    if needed and free < needed + KEEP_FREE:
        raise FindingError(
            error(
                "disk_space_insufficient",
                f"The environments {', '.join(to_build)} need {needed / 1e9:.0f} GB and 1 GB to spare; "
                f"{free / 1e9:.1f} GB are free at {workspace}.",
                path=str(workspace),
                expected=needed + KEEP_FREE,
                actual=free,
                fix="Free some space, move the workspace, or adopt environments that are there.",
            )
        )


def _versions_if_usable(python: str, requirements: RequirementSet, commands: Commands) -> dict[str, str] | None:
    """Versions of what must import, None when the environment is not there or not whole."""
    if not os.access(python, os.X_OK):
        return None
    versions, problem = commands.verify(python, requirements.imports, requirements.device)
    return None if problem or not _pins_match(requirements, versions) else versions


def _pins_match(requirements: RequirementSet, versions: Mapping[str, str]) -> bool:
    """Each exactly pinned module that was imported has the pinned version."""
    for pin in (requirements.first, *requirements.packages):
        name, _, version = pin.partition("==")
        if version and name in versions and versions[name] != version:
            return False
    return True


def _described(name: str, set_name: str, workspace: str, built: bool) -> dict[str, Any]:
    directory = Path(directory_of(name, set_name, workspace))
    python = str(directory / "bin/python")
    return {"python": python, "set": set_name, "built": built, "versions": _marker(directory)["versions"]}


def _adopt(name: str, python: str, commands: Commands) -> dict[str, Any]:
    python = os.path.expanduser(python)
    if not os.access(python, os.X_OK):
        raise FindingError(
            error(
                "environment_missing",
                f"The environment '{name}' names {python}, which is not there or not executable.",
                path=f"environments.{name}.python",
                actual=python,
                fix='Correct the path, or let setup build it: set = "train-cpu" (or another set).',
            )
        )
    versions, problem = commands.verify(python, ADOPTED_IMPORTS.get(name, ()), device="")
    if problem:
        raise FindingError(broken(name, python, problem))
    return {"python": python, "set": "", "built": False, "versions": versions}
