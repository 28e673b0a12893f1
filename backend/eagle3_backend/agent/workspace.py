"""Where things lie on a host: the workspace, its run directories, and the local directory for locks."""

from __future__ import annotations

import json
import os
import re
import stat
import uuid
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Optional

from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.artifacts import write_json

ENDPOINT = "endpoint.json"
"""Lies in the run directory of a service from its first answer to its end."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def read_json(path: Path) -> Optional[Dict[str, Any]]:
    """The object in a small file, or None when it is absent, torn or something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class Workspace:
    """The durable folder of a profile; ``root`` is absolute, everything of ours is under ``root/.eagle3``."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        self.state = self.root / ".eagle3"
        self.runs = self.state / "runs"

    def prepare(self) -> str:
        """Make the folders and the workspace's id where they are absent; the id. Raises OSError."""
        self.runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.state / "workspace.json"
        if not path.exists():
            # Two gateways may come first together: link decides, and the loser reads the winner's id.
            draft = self.state / f"workspace.{uuid.uuid4().hex}"
            write_json(draft, {"id": uuid.uuid4().hex})
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        return str((read_json(path) or {}).get("id", ""))

    def attempt(self, run: str, attempt: int) -> Path:
        """The run directory of an attempt. Raises FindingError for a name that would leave the workspace."""
        if not _NAME.fullmatch(run) or attempt < 1:
            raise FindingError(error("request_invalid", "This is no name of a run.", path="run", actual=run[:200]))
        return self.runs / run / str(attempt)

    def existing(self, run: str, attempt: int) -> Path:
        """As `attempt`, for one that was claimed. Raises FindingError."""
        directory = self.attempt(run, attempt)
        if not (directory / "claim").exists():
            raise FindingError(
                error("run_unknown", f"This host has no attempt {attempt} of {run}.", path=run, actual=attempt)
            )
        return directory

    def attempts(self, run: str) -> List[int]:
        """Numbers of the claimed attempts of a run, ascending."""
        try:
            names = os.listdir(self.runs / run)
        except OSError:
            return []
        return sorted(int(name) for name in names if name.isdigit() and (self.runs / run / name / "claim").exists())

    def run_names(self) -> List[str]:
        try:
            return sorted(name for name in os.listdir(self.runs) if _NAME.fullmatch(name))
        except OSError:
            return []

    def replaced(self) -> FrozenSet[str]:
        """Boot ids and host names that the operator declared gone for good."""
        return frozenset((read_json(self.state / "replaced.json") or {}).get("lost", ()))

    def replace_hosts(self, lost: List[str]) -> None:
        write_json(self.state / "replaced.json", {"lost": sorted(self.replaced() | set(lost))})


def local_directory() -> Path:
    """The directory for locks on this machine's own disk; a workspace may be shared between machines.

    Raises FindingError when somebody else owns the name.
    """
    path = Path(f"/tmp/eagle3-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise FindingError(
            error(
                "local_directory_unsafe",
                f"{path} has to be a directory of this user that nobody else can enter.",
                path=str(path),
                fix=f"Remove {path} or correct its owner and mode (0700).",
            )
        )
    return path
