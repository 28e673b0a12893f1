"""Full screens and dialogs; those that not every start needs are imported when they are opened."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eagle3_tui.screens.base import PanelScreen

VISITED = {
    "hosts": "HostsScreen",
    "machine": "MachineScreen",
    "events": "EventsScreen",
    "orphans": "OrphansScreen",
    "doctor": "DoctorScreen",
    "config": "ConfigScreen",
    "serve": "ServeScreen",
    "results": "ResultsScreen",
    "trace": "TraceScreen",
}


def visited(name: str) -> type[PanelScreen]:
    """The class of a screen that can be opened from anywhere."""
    kind: type[PanelScreen] = getattr(import_module(f"eagle3_tui.screens.{name}"), VISITED[name])
    return kind
