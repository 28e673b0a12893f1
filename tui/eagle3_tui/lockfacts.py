"""The locks of a host as a person reads them: what one run holds together is told together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3_tui.text import clean, clock_span

KINDS = {"artifact": "output", "gpu": "GPU", "stop": "stop of", "place": "place of"}
"""How a kind of lock is called; one that we do not know is called as its host calls it."""


@dataclass(frozen=True)
class Holding:
    """Locks that one run took and the same processes hold; ``gpus`` are indices of this host's GPUs among them."""

    key: str
    run: str
    user: str
    gpus: tuple[int, ...]
    what: str
    held: str
    alive: str
    orphaned: bool
    locks: tuple[Mapping[str, Any], ...]


def holdings(locks: Iterable[Mapping[str, Any]], indices: Mapping[str, int]) -> list[Holding]:
    """The entries of `commands.Locks` by run and processes, those without a supervisor first.

    ``indices`` are the host's GPUs by UUID.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for lock in locks:
        pids = ",".join(str(process.get("pid")) for process in lock.get("processes") or ())
        groups.setdefault(f"lock/{lock.get('run')}/{lock.get('user')}/{pids}", []).append(lock)
    found = [_holding(key, group, indices) for key, group in groups.items()]
    return sorted(found, key=lambda one: (not one.orphaned, one.run))


def _holding(key: str, locks: Sequence[Mapping[str, Any]], indices: Mapping[str, int]) -> Holding:
    first = locks[0]
    things = [str(lock.get("thing") or "") for lock in locks if lock.get("kind") == "gpu"]
    gpus = tuple(sorted(indices[thing] for thing in things if thing in indices))
    told = [f"GPU {numbers(gpus)}"] if gpus else []
    told += [_short(lock) for lock in locks if lock.get("thing") not in indices]
    seconds = [float(lock["seconds"]) for lock in locks if lock.get("seconds") is not None]
    living = len(first.get("processes") or ())
    return Holding(
        key=key,
        run=clean(first.get("run") or "not told", 200),
        user=clean(first.get("user") or "-", 60),
        gpus=gpus,
        what=", ".join(told),
        held=clock_span(max(seconds)) if seconds else "-",
        alive=f"{living} alive" if living else "no process seen",
        orphaned=any(lock.get("orphaned") for lock in locks),
        locks=tuple(locks),
    )


def _short(lock: Mapping[str, Any]) -> str:
    """ "output train/51c0d2e4", "GPU-3f2a9c1e": the kind, and of the thing what tells it from others."""
    kind, thing = str(lock.get("kind") or ""), clean(lock.get("thing") or "that its file does not name", 400)
    if kind == "gpu":
        return thing[:12]  # its name begins with what it is
    name = "/".join(thing.split("/")[-2:]) if kind in KINDS else thing
    return f"{KINDS.get(kind, clean(kind, 40))} {name}"


def numbers(indices: Sequence[int]) -> str:
    """Ascending numbers, with those that follow each other as a range: "0-5,7"."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], index]
        else:
            ranges.append([index])
    return ",".join("-".join(map(str, span)) for span in ranges)


def sentences(one: Holding) -> tuple[str, str]:
    """What is locked and whether anybody lives who holds it; then who took it, and when by the host's clock."""
    pids = ", ".join(str(process.get("pid")) for process in one.locks[0].get("processes") or ())
    living = f"alive: {clean(pids, 200)}" if pids else "held, by no process that can be seen from here"
    alone = ", no supervisor" if one.orphaned else ""
    since = [float(lock["since"]) for lock in one.locks if lock.get("since") is not None]
    began = time.strftime(", since %m-%d %H:%M:%S", time.localtime(min(since))) if since else ""
    return f"{one.what}; {living}{alone}", f"run {one.run}, {one.user}{began} ({one.held})"


def pairs(one: Holding, indices: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every lock with its whole name, then every process that holds them."""
    told = []
    for lock in one.locks:
        kind, thing = str(lock.get("kind") or ""), clean(lock.get("thing") or "not told by its file", 600)
        index = f"{indices[thing]}  " if thing in indices else ""
        told.append((KINDS.get(kind, clean(kind, 40)), f"{index}{thing}"))
    holders = one.locks[0].get("processes") or ()
    return told + [(str(process.get("pid")), clean(process.get("command"), 300)) for process in holders]
