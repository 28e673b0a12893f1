"""Imports the screens before somebody opens one: a key that had to do it would wait for it."""

from __future__ import annotations

import pkgutil
import threading
from importlib import import_module

from eagle3_tui import screens

AFTER_SECONDS = 2.0
"""From the first frame on: until then control imports what it needs to connect."""


def import_screens() -> None:
    """On a thread of its own, which the panel does not wait for when it ends."""
    timer = threading.Timer(AFTER_SECONDS, _import_all)
    timer.daemon = True
    timer.start()


def _import_all() -> None:
    for module in pkgutil.iter_modules(screens.__path__, f"{screens.__name__}."):
        import_module(module.name)
