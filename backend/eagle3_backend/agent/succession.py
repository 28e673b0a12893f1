"""One attempt in the place of another, without the laptop: the successor's own supervisor asks the old one to end.

A spec with ``after`` {"run", "attempt"} is started while that attempt is still at work. Its supervisor is there before
anything is stopped, asks for the stop itself, and begins when nothing of the old attempt is left. The chain of a run
does the same for stages that follow each other; here the one before ends because the next has come.
"""

from __future__ import annotations

from typing import Any, Mapping

from eagle3_backend.agent import runs, stopping
from eagle3_backend.agent.workspace import Workspace


class Predecessor:
    """The attempt whose place is taken."""

    def __init__(self, workspace: Workspace, after: Mapping[str, Any]) -> None:
        self._workspace = workspace
        self.run, self._attempt = str(after["run"]), int(after["attempt"])

    def ask_to_end(self, by: str) -> None:
        """Request its stop. Raises FindingError, for an attempt of another host too; nothing was asked then."""
        stopping.stop(self._workspace, self.run, self._attempt, by=by)

    @property
    def has_ended(self) -> bool:
        """Whether it left its outcome, and with it ports, locks and the memory of its GPUs."""
        return runs.describe(self._workspace, self.run, self._attempt).state.is_ended
