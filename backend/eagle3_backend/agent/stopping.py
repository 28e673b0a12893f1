"""Asking an attempt to end: its supervisor climbs the stop ladder, or a ladder of its own where that one is gone."""

from __future__ import annotations

import time

from eagle3_backend.agent import launch, runs
from eagle3_backend.agent.ladder import KILL
from eagle3_backend.agent.workspace import Workspace
from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.states import RunState


def stop(workspace: Workspace, run: str, attempt: int, *, by: str, kill: bool = False) -> RunState:
    """Ask it to save and leave, with ``kill`` at once; its state then. One that has ended is left as it is.

    Raises FindingError for an attempt that is not there, or that only another host can stop.
    """
    directory = workspace.existing(run, attempt)
    description = runs.describe(workspace, run, attempt)
    if description.state.is_active or description.orphans:
        asked = {"by": by, "wall": time.time()}
        if kill:
            write_json(directory / KILL, asked)
        write_json(directory / "cancel", asked)
    if description.orphans:
        problem = launch.detach("eagle3_backend.agent.orphans", [str(directory)], {}, [])
        if problem is not None:
            raise FindingError(problem)
        return RunState.STOPPING
    elsewhere = [finding for finding in description.findings if finding.code == "run_elsewhere"]
    if elsewhere:
        raise FindingError(*elsewhere)
    return runs.describe(workspace, run, attempt).state
