"""What a stage gets to work with, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from eagle3_backend.agent.journal import Journal
from eagle3_backend.findings import Finding, FindingError, Severity
from eagle3_backend.pipeline.artifacts import write_manifest
from eagle3_backend.pipeline.stages import STAGES


class Stopped(Exception):
    """Raised by a stage after it saved its work because it was asked to leave."""


class StageContext:
    """One attempt of one stage.

    ``parameters`` is the stage's parameter dataclass; ``inputs`` maps artifact kinds to directories (``files`` and
    ``published`` to lists of files); ``output`` is the artifact directory, which may hold an earlier attempt's
    unfinished work: a stage that resumes continues there, any other starts by clearing it.
    """

    def __init__(self, run_directory: Path) -> None:
        self.run_directory = run_directory
        self.attempt = int(run_directory.name)
        self.spec: dict[str, Any] = json.loads((run_directory / "spec.json").read_text(encoding="utf-8"))
        self.stage = STAGES[self.spec["stage"]]
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in self.spec["parameters"].items()
        }
        self.parameters: Any = self.stage.parameters(**values)
        self.output = Path(self.spec["output"])
        self.workspace = self.output.parents[2]
        self.inputs: dict[str, Any] = {
            kind: [Path(entry) for entry in value] if isinstance(value, list) else Path(value)
            for kind, value in self.spec["inputs"].items()
        }
        self.accepted = frozenset(self.spec.get("accepted") or ())
        # Of several processes of one stage (torchrun numbers them) the first speaks; the others keep theirs beside.
        rank = os.environ.get("RANK", "0")
        self.journal = Journal(run_directory / ("journal.jsonl" if rank == "0" else f"journal-{rank}.jsonl"), "stage")
        self.engine_starts = 0
        self._stop = threading.Event()
        self._started = time.monotonic()

    def listen_for_stop(self) -> None:
        """Turn SIGTERM into `stopping`; the stage looks at it between steps, saves, and raises `Stopped`."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def leave_if_asked(self) -> None:
        """Raise `Stopped` when a stop was asked for; call it only where everything is saved."""
        if self.stopping:
            raise Stopped

    def report(self, finding: Finding) -> None:
        """Write a finding to the journal."""
        self.journal.finding(finding)

    def refuse(self, *findings: Finding) -> None:
        """Report findings; errors that the operator has not accepted end the stage (FindingError with all of them)."""
        refused = [each for each in findings if each.severity is Severity.ERROR and each.code not in self.accepted]
        for finding in findings:
            if finding not in refused:
                self.journal.finding(finding)
        if refused:
            raise FindingError(*refused)

    def finish(self, summary: dict[str, Any]) -> None:
        """Declare the artifact whole: its manifest is written last.

        ``seconds``, ``cpu_seconds`` and ``engine_starts`` of this attempt join the summary; CPU time includes every
        process that the stage has waited for, such as engines.
        """
        cpu = os.times()
        summary = {
            **summary,
            "seconds": round(time.monotonic() - self._started, 1),
            "cpu_seconds": round(cpu.user + cpu.system + cpu.children_user + cpu.children_system, 1),
            "engine_starts": self.engine_starts,
        }
        manifest = write_manifest(
            self.output, kind=str(self.stage.makes), spec=self.spec, attempt=self.attempt, summary=summary
        )
        size = sum(entry["bytes"] for entry in manifest["files"])
        self.journal.artifact(str(self.stage.makes), str(self.output), size, self.spec["fingerprint"])
