"""Ends what a killed supervisor left behind: ``python -m eagle3_backend.agent.orphans <run directory>``.

It climbs the same stop ladder from outside, detached, so that a cut link does not leave it half climbed. The exit
status of the stage is lost with its supervisor; the attempt reads as crashed afterwards.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Dict

from eagle3_backend.agent import locks, runs
from eagle3_backend.agent.detach import detached
from eagle3_backend.agent.identity import living
from eagle3_backend.agent.ladder import KILL, StopLadder
from eagle3_backend.agent.supervisor import TICK, UNKILLABLE_SECONDS
from eagle3_backend.agent.workspace import read_json
from eagle3_backend.findings import FindingError


def end(directory: Path) -> None:
    """Climb until nothing of the attempt is left, or what is left hangs in the kernel."""
    supervisor = read_json(directory / "supervisor.json") or {}
    stage = supervisor.get("stage")
    ladder = StopLadder(living(stage), lambda: runs.orphans_of(directory, supervisor), _spec(directory))
    while runs.orphans_of(directory, supervisor):
        if living(stage) is None:
            ladder.sweep()
        ladder.hurry = (directory / KILL).exists()
        ladder.advance()
        if ladder.killing_since is not None and time.monotonic() - ladder.killing_since > UNKILLABLE_SECONDS:
            return
        time.sleep(TICK)


def _spec(directory: Path) -> Dict[str, Any]:
    return read_json(directory / "spec.json") or {}


def main() -> int:
    directory = Path(sys.argv[1])

    def work(request: Dict[str, Any], ready: Any) -> None:
        try:
            # One ladder an attempt: a repeated stop finds the first one at work.
            locks.take([locks.name_of("stop", str(directory))], directory.parent.name)
        except FindingError:
            ready(None)
            return
        ready(None)
        end(directory)

    return detached(work, keep=[], log=directory / "supervisor.log")


if __name__ == "__main__":
    sys.exit(main())
