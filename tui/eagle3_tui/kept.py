"""What an artifact on the host is to its campaign, in words of panel and commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def standing(entry: Mapping[str, Any]) -> str:
    """What it is, in a few words."""
    if str(entry["name"]).endswith(".deleted"):
        return "half deleted"
    if entry["aside"]:
        return "set aside by a restart"
    made = "whole" if entry["whole"] else "unfinished"
    return f"{made}, as planned" if entry["planned"] else f"{made}, other settings"


def missed(entry: Mapping[str, Any]) -> str:
    """What its deletion means for the stages."""
    words = []
    if entry["planned"]:
        what = "is no longer fresh: the next run makes it anew" if entry["whole"] else "begins anew at its next run"
        words.append(f"{entry['stage']} {what}")
    if needed_by := entry["needed_by"]:
        words.append(f"{', '.join(needed_by)} {'loses' if len(needed_by) == 1 else 'lose'} an input")
    return "; ".join(words) or "no stage needs it"
