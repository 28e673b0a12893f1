"""What does the connection layer do in this scenario? Everything is driven for real, on loopback."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import ssh_host_keys
import ssh_scenarios
from runner import Answer


def run(folder: Path, given: dict[str, Any]) -> Answer:
    if "offered" in given:
        return ssh_host_keys.run(folder / given["known_hosts"], json.loads((folder / given["offered"]).read_text()))
    scenario = json.loads((folder / given["scenario"]).read_text(encoding="utf-8"))
    if "server" in scenario:
        act = ssh_scenarios.channels
    elif "events" in scenario:
        act = ssh_scenarios.silent_link
    else:
        act = ssh_scenarios.closed_panel
    with tempfile.TemporaryDirectory(prefix="eagle3-case-", ignore_cleanup_errors=True) as workspace:
        return asyncio.run(act(scenario, Path(workspace)))
