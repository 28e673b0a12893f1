"""How a person gets a shell on the campaign's host: the program to run in their own terminal."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from eagle3_backend.control.campaign import Campaign
from eagle3_backend.profile import Host

LOGIN = 'exec "${SHELL:-/bin/sh}" -l'


def shell(campaign: Campaign, stage: str) -> dict[str, Any]:
    """The answer to `Shell`: in the run directory of the stage's newest attempt, else in the workspace."""
    workspace = campaign.plan.workspace
    view = next((view for view in campaign.views() if view.name == stage), None)
    directory = workspace if workspace.startswith("/") else ""
    if directory and view is not None and view.attempt:
        directory = f"{workspace}/.eagle3/runs/{view.run}/{view.attempt}"
    return {"argv": argv_of(campaign.profile.host, directory), "directory": directory}


def argv_of(host: Host, directory: str) -> list[str]:
    """A directory that is gone, or not known yet, leaves one where a login begins."""
    there = f"cd {shlex.quote(directory)} && " if directory else ""
    command = f"{there}{LOGIN}; {LOGIN}" if there else LOGIN
    if host.address == "embedded":
        return [os.environ.get("SHELL") or "/bin/sh", "-c", command]
    if host.transport:
        return [*host.transport, "sh", "-c", command]
    identity = str(Path(host.identity).expanduser()) if host.identity else ""
    options = {"-l": host.user, "-p": str(host.port or ""), "-J": host.jump, "-i": identity}
    given = [word for name, value in options.items() if value for word in (name, value)]
    return ["ssh", "-t", *given, "--", host.address, command]
