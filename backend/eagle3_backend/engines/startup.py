"""How long an endpoint took from the operator's word to drafted tokens, and which part of it was the engine's.

Whatever is not the engine's own start-up is ours to shorten: the laptop's checks, the way to the host, the stage's
start, the time until it is seen that the engine is ready, and its first answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping


@dataclass(frozen=True)
class Moments:
    """When each step was, seconds of one host's monotonic clock.

    ``asked``: the key or command; ``claimed``: the host took the request; ``began``: the stage was started, which waits
    in a swap until the old endpoint has ended; ``spawned``: the engine's process; ``ready``: the engine says in its log
    that it has started; ``drafted``: an answer with drafted tokens has come back.
    """

    asked: float
    claimed: float
    began: float
    spawned: float
    ready: float
    drafted: float


def startup(moments: Moments, *, replaces: bool, asked_at: float) -> Dict[str, float]:
    """The figures of a start in seconds: ``total`` from the word to drafted tokens, ``engine`` its own start-up,
    ``waited`` for the endpoint that it ``replaces``, and ``overhead``, which is the rest and the sum of `PARTS`:
    ``request`` until the host took it, ``supervisor`` until the stage was started, ``stage`` until the engine was,
    ``answer`` from the engine's word to the drafted tokens. ``asked_at`` is the host's wall time of the word.
    """
    wait = moments.began - moments.claimed
    found = {
        "total": moments.drafted - moments.asked,
        "engine": moments.ready - moments.spawned,
        "waited": wait if replaces else 0.0,
        "request": moments.claimed - moments.asked,
        "supervisor": 0.0 if replaces else wait,
        "stage": moments.spawned - moments.began,
        "answer": moments.drafted - moments.ready,
    }
    found["overhead"] = sum(found[name] for name in PARTS)
    return {"asked_at": asked_at, **{name: round(value, 2) for name, value in found.items()}}


PARTS = ("request", "supervisor", "stage", "answer")
"""What the overhead is made of, in order of time."""


def read(data: Mapping[str, Any]) -> Dict[str, float]:
    """The figures of a journal's line or an endpoint; {} for anything that is none."""
    names = ("asked_at", "total", "engine", "waited", "overhead", *PARTS)
    found: Dict[str, float] = {}
    for name in names:
        value = data.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return {}
        found[name] = float(value)
    return found


def words(found: Mapping[str, float]) -> str:
    """The figures in one sentence."""
    waited = f", {found['waited']:.1f} s waiting for the one before" if found["waited"] else ""
    return (
        f"drafted tokens {found['total']:.1f} s after the command: {found['engine']:.1f} s the engine's own "
        f"start-up{waited}, {found['overhead']:.1f} s everything else"
    )
