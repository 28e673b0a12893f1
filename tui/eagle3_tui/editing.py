"""A text in the operator's own editor: a copy is edited, and kept where it cannot be taken over."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eagle3_backend.findings import FindingError, error
from eagle3_tui.lending import editor, lend

if TYPE_CHECKING:
    from eagle3_tui.app import Panel


@dataclass(frozen=True)
class Draft:
    """What an editor made of a text, and the file in which it stands until `forget`."""

    path: Path
    text: str

    def forget(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)


def edit(panel: Panel, name: str, text: str) -> Draft | None:
    """Let ``text`` be edited as a file called ``name``; None when it came back as it was.

    Raises FindingError `editor_missing`, `editor_failed`, `draft_unreadable`; what was written stands in the finding's
    path then.
    """
    program = editor(os.environ)
    path = Path(tempfile.mkdtemp(prefix="eagle3-")) / name
    path.write_bytes(text.encode())
    trouble = lend(panel, [*program, str(path)])
    try:
        made = path.read_bytes()
        if made == text.encode():
            shutil.rmtree(path.parent, ignore_errors=True)
            if not trouble:
                return None
        if trouble:
            kept = " What was written is kept." if made != text.encode() else ""
            message = f"The editor failed: {trouble}. Nothing is changed.{kept}"
            raise FindingError(error("editor_failed", message, path=str(path) if kept else "", actual=trouble))
        return Draft(path, made.decode())
    except (OSError, UnicodeDecodeError) as problem:
        words = getattr(problem, "strerror", None) or "it is not UTF-8"
        raise FindingError(
            error("draft_unreadable", f"What the editor left cannot be read: {words}.", path=str(path))
        ) from problem
