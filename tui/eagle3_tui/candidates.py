"""What can be put side by side: the campaign's own drafters and runs, profiles, and whatever path is typed.

Nothing here touches a screen; what lists folders may take as long as a disk takes, so call it on a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3_backend.control.snapshot import Snapshot
from eagle3_tui.comparing import DRAFTER, PROFILE, RUN

LISTED = 200
"""Most entries of a folder that are offered."""


@dataclass(frozen=True)
class Candidate:
    """One side to choose. ``where`` is `host` for what lies on the campaign's host, else `here`."""

    kind: str
    title: str
    note: str = ""
    path: str = ""
    where: str = "here"
    run: str = ""
    attempt: int = 0
    stage: str = ""


def artifacts(snapshot: Snapshot) -> list[Candidate]:
    """The drafters that this campaign has exported."""
    view = snapshot.stage("export")
    if view is None or not view.fresh or not view.output:
        return []
    where = f"on {snapshot.host.name}"
    return [
        Candidate(DRAFTER, f"{snapshot.campaign} export, {layout}", where, f"{view.output}/{layout}", "host")
        for layout in ("flat", "nested")
    ]


def profiles() -> list[Candidate]:
    from eagle3_tui.places import profiles_by_name, shipped_profiles

    shipped = shipped_profiles()
    return [
        Candidate(PROFILE, name, "shipped" if path.parent == shipped else str(path.parent), str(path))
        for name, path in sorted(profiles_by_name().items())
    ]


def runs(answer: Mapping[str, Any]) -> list[Candidate]:
    """From the answer to `Attempts`, newest first."""
    return [
        Candidate(
            RUN,
            f"{entry['stage']} {str(entry['fingerprint'])[:8]}, attempt {entry['attempt']}",
            str(entry["state"]),
            where="host",
            run=str(entry["run"]),
            attempt=int(entry["attempt"]),
            stage=str(entry["stage"]),
        )
        for entry in answer["attempts"]
    ]


def is_path(words: str) -> bool:
    return "/" in words or words.startswith(("~", "."))


def paths(words: str) -> list[Candidate]:
    """What begins like the typed path: folders, JSON and TOML files; and the path itself, first where it is there."""
    place = Path(os.path.expanduser(words))
    folder, start = (place, "") if words.endswith("/") else (place.parent, place.name)
    base = words[: len(words) - len(start)]
    found = []
    for name, is_folder in _listed(folder, start):
        if is_folder:
            note = "has a config.json" if os.path.exists(folder / name / "config.json") else ""
            found.append(Candidate(DRAFTER, f"{base}{name}/", note, f"{base}{name}/"))
        elif name.endswith((".json", ".toml")):
            found.append(typed(f"{base}{name}"))
    itself = typed(words)
    found = [itself, *found] if os.path.exists(place) else [*found, itself]
    return list({one.path: one for one in found}.values())[:LISTED]


def _listed(folder: Path, start: str) -> list[tuple[str, bool]]:
    """Entries of a folder that begin with ``start``, and whether each is a folder; hidden ones when asked for."""
    try:
        with os.scandir(folder) as entries:
            seen = [entry for _, entry in zip(range(LISTED * 10), entries, strict=False)]
            return sorted(
                (entry.name, entry.is_dir())
                for entry in seen
                if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith("."))
            )
    except (OSError, ValueError):
        return []


def completed(words: str, offered: Iterable[Candidate]) -> str:
    """``words`` as far as all paths that begin with them agree."""
    beginning = os.path.commonprefix([one.path for one in offered if one.path != words and one.path.startswith(words)])
    return beginning or words


def typed(path: str) -> Candidate:
    """What a path stands for; a TOML file is a profile."""
    return Candidate(PROFILE if path.endswith(".toml") else DRAFTER, path, "", path)


def matching(candidates: Iterable[Candidate], words: str) -> list[Candidate]:
    """Those that hold every typed word."""
    wanted = words.lower().split()
    return [one for one in candidates if all(word in f"{one.kind} {one.title}".lower() for word in wanted)]


def ordered(candidates: Iterable[Candidate], stage: str) -> list[Candidate]:
    """Each once: the runs of ``stage`` first, then drafters, profiles and other runs."""
    ranks = {DRAFTER: 1, PROFILE: 2, RUN: 3}
    return sorted(
        dict.fromkeys(candidates), key=lambda one: 0 if stage and one.stage == stage else ranks.get(one.kind, 9)
    )
