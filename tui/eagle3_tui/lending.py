"""The terminal lent to another program for a while: an editor, or a shell on the host."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from eagle3_backend.findings import FindingError, error

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

EDITORS = ("vi", "nano")
"""Looked for when the environment names none."""

SETTLE_SECONDS = 1.0
"""How long an interrupt that was meant for the other program may still be on its way to ours."""


def editor(environment: Mapping[str, str]) -> list[str]:
    """The operator's editor: ``VISUAL``, then ``EDITOR``, then what is there. Raises FindingError `editor_missing`."""
    named = environment.get("VISUAL") or environment.get("EDITOR") or ""
    try:
        words = shlex.split(named)
    except ValueError:
        words = []
    words = words or [name for name in EDITORS if not named and shutil.which(name)][:1]
    if words and shutil.which(words[0]):
        return words
    raise FindingError(
        error(
            "editor_missing",
            f"There is no editor '{named}'." if named else "No editor is known.",
            path="VISUAL, EDITOR",
            actual=named or None,
            fix="Set EDITOR to a program that is there; i edits single values without one.",
        )
    )


def lend(panel: Panel, argv: Sequence[str], folder: Path | None = None) -> str:
    """Run a program in the panel's terminal until it ends; empty, or what went wrong.

    The loop stands still meanwhile, so that nothing is drawn over the program; links and logs have a thread of their
    own. Nothing may be raised inside `suspend`, which would leave the screen half restored (Textualize/textual#6692).
    """
    trouble = ""
    panel.lent = True
    try:
        with panel.suspend():
            trouble = _run(argv, folder)
    except SuspendNotSupported:
        trouble = "this terminal cannot be lent to another program"
    finally:
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, panel.take_back_terminal)
    return trouble


def _run(argv: Sequence[str], folder: Path | None) -> str:
    try:
        # The panel draws on standard error: it is the terminal, whatever standard output is.
        status = subprocess.call([*argv], cwd=folder, stdout=sys.__stderr__)
    except (OSError, ValueError) as problem:
        return f"{argv[0]}: {getattr(problem, 'strerror', None) or problem}"
    if status < 0:
        return f"{os.path.basename(argv[0])} was ended by signal {-status}"
    return f"{os.path.basename(argv[0])} ended with {status}" if status else ""
