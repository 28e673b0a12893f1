"""One attempt in the place of another, without the laptop: the successor's own supervisor asks the old one to end.

A spec with ``after`` {"run", "attempt"} is started while that attempt is still at work. Its supervisor is there before
anything is stopped, asks for the stop itself, and begins when nothing of the old attempt is left. The chain of a run
does the same for stages that follow each other; here the one before ends because the next has come.

A successor that fails before it served leaves nothing serving. Its supervisor then starts the old one again, as a new
attempt with the same spec, in the place of the failed one: ``after`` has ``failed``, the reason, then. That attempt
brings nobody back: one failure after the other ends there.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from eagle3_backend.agent import launch, runs, stopping
from eagle3_backend.agent.workspace import ENDPOINT, Workspace, read_json
from eagle3_backend.engines.plan import KEY_VARIABLE
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.states import RunState


class Predecessor:
    """The attempt whose place is taken."""

    def __init__(self, workspace: Workspace, after: Mapping[str, Any]) -> None:
        self._workspace = workspace
        self.run, self._attempt = str(after["run"]), int(after["attempt"])
        self._failed = str(after.get("failed") or "")
        self._endpoint: Optional[Mapping[str, Any]] = None
        self._by = ""
        self.again: Optional[Path] = None
        """Run directory of the attempt that was started to bring it back."""

    def ask_to_end(self, by: str) -> str:
        """Request its stop, unless it has failed; what was done, in a sentence.

        Raises FindingError, for an attempt of another host too; nothing was asked then.
        """
        self._by = by
        if self._failed:
            return f"Serves again, as {self.run}, which had taken its place, failed: {self._failed}"
        endpoint = read_json(self._workspace.existing(self.run, self._attempt) / ENDPOINT)
        before = runs.describe(self._workspace, self.run, self._attempt)
        stopping.stop(self._workspace, self.run, self._attempt, by=by)
        # What had ended by itself served nobody, whatever it left behind.
        self._endpoint = endpoint if before.state.is_active or before.orphans else None
        return f"Takes the place of {self.run}, which was asked to end."

    def has_ended(self) -> bool:
        """Whether it left its outcome, and with it ports, locks and the memory of its GPUs.

        What a supervisor that died on the way left at work is asked to end, once.
        """
        now = runs.describe(self._workspace, self.run, self._attempt)
        if now.orphans and self._by:
            by, self._by = self._by, ""
            with contextlib.suppress(FindingError, OSError):
                stopping.stop(self._workspace, self.run, self._attempt, by=by)
        return now.state.is_ended

    def bring_back(
        self, successor: Path, spec: Mapping[str, Any], reason: str, secrets: Mapping[str, str]
    ) -> List[Finding]:
        """Start it again, on its port and with its key, where it had been asked to end while it served and its
        ``successor`` (run directory and ``spec``) failed, for this ``reason``, without having served.

        What came of it; nothing where there is nothing to bring back.
        """
        if self._endpoint is None or _has_served(successor):
            return []
        run, number = str(spec["run"]), int(spec["attempt"])
        old = read_json(self._workspace.attempt(self.run, self._attempt) / "spec.json") or {}
        after = {"run": run, "attempt": number, "port": self._endpoint.get("port"), "failed": reason}
        again: Dict[str, Any] = {**old, "after": after, "then": []}
        again.pop("attempt", None)
        try:
            answer = launch.start(
                self._workspace,
                again,
                request=f"{run}/{number} failed",
                by=f"{run}, which failed",
                secrets={**secrets, KEY_VARIABLE: str(self._endpoint.get("api_key") or "")},
            )
        except FindingError as problem:
            return [*problem.findings, not_brought_back(self.run)]
        if answer["started"]:
            self.again = self._workspace.attempt(self.run, answer["attempt"])
        return [_brought_back(run, self.run, answer)]


def _has_served(directory: Path) -> bool:
    """Whether the stage has ever said that it is ready."""
    try:
        with open(directory / "journal.jsonl", "rb") as file:
            return any(_says_ready(line) for line in file)
    except OSError:
        return False


def _says_ready(line: bytes) -> bool:
    try:
        entry = json.loads(line)
        return bool(entry["w"] == "stage" and entry["kind"] == "state" and entry["state"] == RunState.READY.value)
    except (ValueError, KeyError, TypeError):
        return False


def _brought_back(run: str, old: str, answer: Mapping[str, Any]) -> Finding:
    return warning(
        "swap_undone",
        f"{run} failed before it served: the endpoint before it is started again, as attempt {answer['attempt']} of "
        f"{old}.",
        path="serve",
        expected=run,
        actual=f"{old}/{answer['attempt']}",
        fix="Mend what failed, then swap again. Whether it serves by now: eagle3-tui serve --list",
    )


def not_brought_back(old: str) -> Finding:
    """Nothing serves: neither the successor nor the one before it."""
    return error(
        "swap_not_undone",
        f"The endpoint before it, {old}, could not be started again: nothing serves in its place.",
        path="serve",
        expected=old,
        fix="eagle3-tui serve, with the settings that served before.",
    )
