"""Which commands there are and where each lies: a start imports and builds the one that was asked for, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

PLACES = {
    "run": "runs.run",
    "attach": "runs.attach",
    "stop": "runs.stop",
    "resume": "runs.resume",
    "trace": "trace.trace",
    "status": "look.status",
    "logs": "look.logs",
    "metrics": "look.metrics",
    "doctor": "look.doctor",
    "serve": "serving.serve",
    "endpoint": "serving.endpoint",
    "chat": "chat.chat",
    "check": "check.check",
    "bench": "running.bench",
    "diagnose": "diagnosing.diagnose",
    "engines": "check.engines",
    "diff": "diff.diff",
    "convert": "convert.convert",
    "inspect": "inspect.inspect",
    "hosts": "hosts.app",
    "artifacts": "artifacts.app",
    "profiles": "settings.profiles",
    "config": "settings.config",
}
"""Module and name in this package of each command's function, or of the group of its own commands; in help's order."""


class Commands(TyperGroup):
    """The group of all of them, with those that it was made with first."""

    def __init__(self, *, commands: Mapping[str, Any], **given: Any) -> None:
        made: Any = _Built(commands)  # said to be a dict; only read as a mapping
        super().__init__(commands=made, **given)


class _Built(Mapping[str, Any]):
    """Commands by name, made when they are looked at."""

    def __init__(self, made: Mapping[str, Any]) -> None:
        self._made = dict(made)
        self._names = (*made, *PLACES)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _build(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _build(name: str) -> Any:
    """Raises KeyError when there is no such command."""
    module, _, thing = PLACES[name].partition(".")
    found = getattr(import_module(f"eagle3_tui.commands.{module}"), thing)
    alone = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    return get_group(alone).commands[name]
