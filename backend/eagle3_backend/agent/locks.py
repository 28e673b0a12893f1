"""Locks that end with their holder: one for each artifact directory and each GPU.

The kernel drops a `flock` when the last descriptor of it closes. It is taken by whoever starts an attempt and handed
down to the supervisor and the stage's first process, so it outlives a killed supervisor as long as the work goes on.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.agent.workspace import local_directory
from eagle3_backend.findings import FindingError, error

IN_USE = {"gpu": "gpu_in_use", "place": "swap_under_way"}
"""Codes of what is held already, by the kind of the lock."""


def take(names: Sequence[Tuple[str, str]], run: str) -> List[int]:
    """Lock every (file name, what it stands for) in order; the descriptors, close-on-exec.

    Raises FindingError with the holder of the first that is taken; nothing stays locked then.
    """
    held: List[int] = []
    try:
        for name, thing in names:
            held.append(_take_one(name, thing, {"thing": thing, "run": run, "user": _user(), "since": time.time()}))
    except BaseException:
        release(held)
        raise
    return held


def name_of(kind: str, thing: str) -> Tuple[str, str]:
    """The lock file that stands for a path, and the path; ``kind`` keeps locks of another purpose apart."""
    digest = hashlib.sha256(thing.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return f"{kind}-{digest}.lock", thing


def artifact_of(spec: Mapping[str, Any]) -> Tuple[str, str]:
    """The artifact directory that an attempt of this spec has to hold."""
    return name_of("artifact", os.path.realpath(str(spec["output"])))


def gpus_of(spec: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Its GPUs; one order for everybody is what keeps two starts from waiting for each other."""
    gpus = sorted(str(uuid) for uuid in spec.get("gpus") or ())
    return [(f"gpu-{uuid.replace('/', '_')}.lock", uuid) for uuid in gpus]


def place_of(run_directory: Path) -> Tuple[str, str]:
    """The right to take the place of an attempt in this directory, which one successor alone can have."""
    return name_of("place", str(run_directory))


def holder(name: str) -> Optional[Dict[str, Any]]:
    """Who wrote themselves into a lock file last, or None."""
    try:
        return dict(json.loads((local_directory() / name).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def release(descriptors: Sequence[int]) -> None:
    """Let go of our share; the lock is free when nobody else has the descriptor."""
    for descriptor in descriptors:
        os.close(descriptor)


def _take_one(name: str, thing: str, claim: Dict[str, Any]) -> int:
    descriptor = os.open(local_directory() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        os.close(descriptor)
        who = holder(name) or {}
        kind = name.partition("-")[0]
        what = f"The place of {thing}" if kind == "place" else thing
        raise FindingError(
            error(
                IN_USE.get(kind, "already_running"),
                f"{what} is held by {who.get('run', 'another attempt')}.",
                path=thing,
                actual=who,
                fix="Wait for it, or stop it first.",
            )
        ) from problem
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(claim).encode(), 0)
    return descriptor


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
