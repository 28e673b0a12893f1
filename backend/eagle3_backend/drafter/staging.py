"""A directory that appears under its name when it is whole, or not at all."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from eagle3_backend.findings import Finding, FindingError, error


def occupied(destination: Path) -> Finding:
    """The finding about a name that is taken."""
    return error(
        "destination_exists",
        "There is something already where the converted drafter is to go, and nothing is overwritten.",
        path=str(destination),
        fix="Name a directory that does not exist yet.",
    )


@contextmanager
def staged(destination: Path) -> Iterator[Path]:
    """A directory beside ``destination`` to be filled, which takes that name when the body ends well.

    It is locked while its process lives: what a killed one has left is known by its free lock, and removed here.
    Raises OSError, and FindingError `destination_exists` where another one was faster.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    for left in destination.parent.glob(f".{glob.escape(destination.name)}.*.part"):
        with _locked(left) as free:
            if free:
                shutil.rmtree(left, ignore_errors=True)
    stage = destination.with_name(f".{destination.name}.{os.getpid()}.part")
    stage.mkdir()
    try:
        with _locked(stage):
            yield stage
            _rename(stage, destination)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _rename(stage: Path, destination: Path) -> None:
    try:
        os.rename(stage, destination)
    except OSError as problem:
        if problem.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FindingError(occupied(destination)) from problem
        raise


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Hold a directory's lock; False where another process has it, or where the file system gives none."""
    handle = None
    try:
        try:
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except OSError:
            held = False
        yield held
    finally:
        if handle is not None:
            os.close(handle)
