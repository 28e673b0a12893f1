"""Profiles as files of this laptop: written whole, and only over what was read."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

from eagle3_backend.findings import FindingError, error
from eagle3_backend.profile import validated

BYTE_ORDER_MARK = "\ufeff"


def write(path: Path, text: str, before: str) -> str:
    """The answer to `WriteProfile`. Raises FindingError for a faulty profile and for a file that changed; OSError."""
    try:
        validated(path, tomllib.loads(text.removeprefix(BYTE_ORDER_MARK)))
    except tomllib.TOMLDecodeError as problem:
        raise FindingError(
            error("profile_invalid", f"The profile is not TOML: {problem}.", path=str(path))
        ) from problem
    file = path.resolve()  # a link stays a link
    if (file.read_bytes().decode("utf-8", "replace") if file.exists() else "") != before:
        raise FindingError(
            error(
                "profile_changed_meanwhile",
                "The profile's file is not what it was when the change began.",
                path=str(path),
                fix="Read it again (r on the form), then make the change once more.",
            )
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(text.encode())
        if file.exists():
            shutil.copymode(file, temporary)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
    return str(path)
