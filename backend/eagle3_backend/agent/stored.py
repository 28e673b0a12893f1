"""The artifacts that lie in a workspace, and taking one away.

An artifact is a directory `<workspace>/<campaign>/<stage>/<name>`; its name is the fingerprint, followed by
`.old-<time>` when a restart set it aside, and by `.deleted` while, or after, a deletion that did not come to its end.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from eagle3_backend.agent import locks
from eagle3_backend.agent.runs import Description
from eagle3_backend.agent.workspace import Workspace, read_json
from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.artifacts import MANIFEST, read_manifest
from eagle3_backend.pipeline.stages import STAGES

ASIDE, DELETED = ".old-", ".deleted"
_CAMPAIGN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_MAKING = frozenset(stage.name for stage in STAGES.values() if stage.makes is not None)


def listed(workspace: Workspace, campaign: str) -> List[Dict[str, Any]]:
    """The artifacts of a campaign, whole or not: where each lies, its bytes on disk, who made it, what it was made of.

    Raises FindingError for a name that is none of a campaign.
    """
    if not _CAMPAIGN.fullmatch(campaign):
        raise FindingError(error("request_invalid", "This is no name of a campaign.", path="campaign", actual=campaign))
    found = []
    for stage in STAGES:
        folder = workspace.root / campaign / stage
        if stage not in _MAKING or os.path.realpath(folder) != _real(workspace, campaign, stage):
            continue
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            path = folder / name
            if not path.is_symlink() and path.is_dir():
                found.append(_told(path, stage, read_json(path / MANIFEST) or {}))
    return found


def _told(path: Path, stage: str, manifest: Mapping[str, Any]) -> Dict[str, Any]:
    made_by = manifest.get("made_by")
    made_by = made_by if isinstance(made_by, dict) else {}
    return {
        "path": str(path),
        "stage": stage,
        "name": path.name,
        "fingerprint": _base(path.name),
        "aside": ASIDE in path.name,
        "whole": not path.name.endswith(DELETED) and read_manifest(path) is not None,
        "bytes": size_of(path),
        "run": made_by.get("run"),
        "attempt": made_by.get("attempt"),
        "modified": path.stat().st_mtime,
        "inputs": manifest.get("inputs") or {},
    }


def size_of(directory: Path) -> int:
    """Bytes of all files under a directory; links count for themselves, and what vanishes meanwhile for nothing."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def delete(workspace: Workspace, wanted: str, attempts: Sequence[Description]) -> Dict[str, Any]:
    """Take an artifact away, unless one of ``attempts`` is at work with it. Answer: {path, deleted, bytes}.

    It loses its name first and its manifest next, so that a deletion that is cut leaves nothing that looks whole; a
    second request removes the rest, and one for what is gone already deletes nothing. Raises FindingError, OSError.
    """
    path = _artifact_path(workspace, wanted)
    remains = path if path.name.endswith(DELETED) else path.with_name(path.name + DELETED)
    if not _is_directory(path) and not _is_directory(remains):
        return {"path": str(path), "deleted": False, "bytes": 0}
    _refuse_foreign(path, remains, attempts)
    named = path.with_name(path.name[: -len(DELETED)]) if path is remains else path
    _refuse_at_work(named, workspace, attempts)
    _refuse_adopted(named, workspace, attempts)
    held = locks.take([locks.name_of("artifact", str(named))], "a deletion")
    try:
        freed = _remove(remains)
        if path is not remains and _is_directory(path):
            path.rename(remains)
            freed += _remove(remains)
    finally:
        locks.release(held)
    return {"path": str(path), "deleted": True, "bytes": freed}


def _remove(directory: Path) -> int:
    if not _is_directory(directory):
        return 0
    freed = size_of(directory)
    try:
        os.unlink(directory / MANIFEST)
    except FileNotFoundError:
        pass
    shutil.rmtree(directory)
    return freed


def _artifact_path(workspace: Workspace, wanted: str) -> Path:
    """The artifact's directory, with no link on the way below the workspace. Raises FindingError."""
    path = Path(os.path.realpath(workspace.root)) / _below(workspace, wanted)
    parts = path.parts[-3:]
    right = (
        len(path.parts) == len(Path(os.path.realpath(workspace.root)).parts) + 3
        and _CAMPAIGN.fullmatch(parts[0])
        and parts[1] in _MAKING
        and _CAMPAIGN.fullmatch(parts[2])
    )
    if not right:
        raise _outside(workspace, wanted)
    if os.path.realpath(path) != str(path):
        raise FindingError(
            error(
                "artifact_is_link",
                "A link is not followed to delete what it leads to.",
                path=wanted,
                actual=os.path.realpath(path),
                fix="Remove the link, or what it leads to, by hand.",
            )
        )
    return path


def _below(workspace: Workspace, wanted: str) -> str:
    for root in (str(workspace.root), os.path.realpath(workspace.root)):
        if wanted.startswith(f"{root}{os.sep}") and ".." not in Path(wanted).parts:
            return wanted[len(root) + 1 :]
    raise _outside(workspace, wanted)


def _outside(workspace: Workspace, wanted: str) -> FindingError:
    return FindingError(
        error(
            "artifact_path_invalid",
            "Only an artifact of a stage in this workspace can be deleted.",
            path=wanted[:300],
            expected=f"{workspace.root}/<campaign>/<stage>/<name>",
            actual=wanted[:300],
            fix="eagle3-tui artifacts",
        )
    )


def _refuse_foreign(path: Path, remains: Path, attempts: Sequence[Description]) -> None:
    """A folder that no run and no manifest of ours speaks of was put there by somebody."""
    stage, base = path.parent.name, _base(path.name)
    manifest = read_json(path / MANIFEST) or {}
    ours = manifest.get("stage") == stage and manifest.get("fingerprint") == base
    made = any(entry.spec.get("stage") == stage and entry.spec.get("fingerprint") == base for entry in attempts)
    if not (ours or made or _is_directory(remains)):
        raise FindingError(
            error(
                "artifact_unknown",
                "No run of this workspace made this folder, so it is not deleted.",
                path=str(path),
                fix="Remove it by hand if nobody needs it.",
            )
        )


def _refuse_at_work(path: Path, workspace: Workspace, attempts: Sequence[Description]) -> None:
    for entry in attempts:
        # Processes without a supervisor, and runs of another host, may be at work as well.
        if not entry.state.is_active and all(finding.code not in _MAY_WORK for finding in entry.findings):
            continue
        for spec, words in _with_successors(entry):
            writes = _lies_in(spec.get("output"), path, workspace)
            # A parameter may name a directory, too: drafters to compare with, or one to begin with.
            read = (*_values(spec.get("inputs")), *_values(spec.get("parameters")))
            if writes or any(_lies_in(used, path, workspace) for used in read):
                raise FindingError(
                    error(
                        "artifact_in_use",
                        f"{words} {'writes' if writes else 'reads'} this artifact.",
                        path=str(path),
                        actual={"run": entry.run, "attempt": entry.attempt, "state": entry.state.value},
                        fix="Wait for it, or stop it first.",
                    )
                )


_MAY_WORK = ("remote_process_orphaned", "run_elsewhere")


def _with_successors(entry: Description) -> Iterator[Tuple[Mapping[str, Any], str]]:
    yield entry.spec, f"{entry.run}, attempt {entry.attempt}, is {entry.state.value} and"
    for spec in entry.spec.get("then") or ():
        yield spec, f"{spec.get('run')} is queued behind {entry.run} and"


def _refuse_adopted(path: Path, workspace: Workspace, attempts: Sequence[Description]) -> None:
    """What a profile named as its own ready-made material stays, wherever it lies."""
    for entry in attempts:
        adopted = (entry.spec.get("parameters") or {}).get("adopt")
        if adopted and _lies_in(adopted, path, workspace):
            raise FindingError(
                error(
                    "artifact_adopted",
                    f"{entry.run} adopted what lies here.",
                    path=str(path),
                    actual=adopted,
                    fix="Adopted directories are never deleted from here; remove it by hand if nobody needs it.",
                )
            )


def _values(entries: Any) -> Iterator[Any]:
    for value in entries.values() if isinstance(entries, dict) else ():
        yield from value if isinstance(value, (list, tuple)) else (value,)


def _lies_in(used: Any, path: Path, workspace: Workspace) -> bool:
    """Whether a place that a spec names is this artifact, or lies in it."""
    if not isinstance(used, str):
        return False
    place = os.path.realpath(workspace.root / Path(used).expanduser())
    return f"{place}{os.sep}".startswith(f"{path}{os.sep}")


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _base(name: str) -> str:
    """The fingerprint in an artifact's name."""
    return (name[: -len(DELETED)] if name.endswith(DELETED) else name).partition(ASIDE)[0]


def _real(workspace: Workspace, *parts: str) -> str:
    return os.path.join(os.path.realpath(workspace.root), *parts)
