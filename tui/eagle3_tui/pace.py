"""When the panel draws: what is new at once, or as seldom as the operator chose, but after what a key brings; clock and
ages as they are read.

Nothing is drawn, and next to nothing computed, while nothing on the screen changes. Times are monotonic seconds.
"""

from __future__ import annotations

import math

from eagle3_backend.control.snapshot import HostView
from eagle3_backend.states import LinkState

RATES = (10.0, 4.0, 2.0, 1.0, 0.5, 0.0)
"""Redraws a second to choose from: at most so many, and only when something is new; 0 is a pause."""
SETTLED_SECONDS = 60.0
"""Without a link for so long, nobody waits for seconds."""
AGE_SECONDS = 1.0
"""Between two steps of clock and ages."""
AWAY_AGE_SECONDS = ((10.0, 2.0), (SETTLED_SECONDS, 5.0), (math.inf, 10.0))
"""The same without a link, where each is a repaint and nothing else moves: (while it is away for less than, step)."""
COVERED_AGE_SECONDS = 60.0
"""The same under a dialog, where each is a repaint of all that is seen."""
COVERED_SECONDS = 2.0
"""What is new under a dialog is drawn at most this often."""
ANSWER_SECONDS = 0.1
"""After a key nothing but its own picture is drawn for so long."""
HELD_SECONDS = 0.5
"""While keys come one after the other, what is new is drawn this often all the same."""
ESCAPE_SECONDS = 0.05
"""After an escape character nothing more of a key is to come; Textual waits twice as long."""


class Pace:
    """The rate of redraws that the operator chose."""

    def __init__(self, reduced: bool = False) -> None:
        self._chosen = RATES.index(0.5) if reduced else 0
        self._drawn = self._pressed = self._held = -math.inf

    def choose_next(self) -> float:
        """Another rate, which is returned."""
        self._chosen = (self._chosen + 1) % len(RATES)
        return RATES[self._chosen]

    def wait(self, now: float) -> float:
        """Until the next picture may be drawn; infinite in a pause. Control has never more than the highest rate."""
        rate = RATES[self._chosen]
        if not rate:
            return math.inf
        due = self._drawn + 1 / rate if self._chosen else now
        return max(due - now, self.answering(now))

    def answering(self, now: float) -> float:
        """Until what no key asked for may be drawn."""
        return max(0.0, min(self._pressed + ANSWER_SECONDS, self._held + HELD_SECONDS) - now)

    def pressed(self, now: float) -> None:
        """A key came: what it brings is drawn before all else."""
        if now >= self._pressed + ANSWER_SECONDS:
            self._held = now
        self._pressed = now

    def drawn(self, now: float) -> None:
        """A picture is drawn."""
        self._drawn = self._held = now


def is_away(host: HostView) -> bool:
    """Whether there is no link, and none is being made for the first time."""
    return host.link not in (LinkState.LIVE, LinkState.STALE, LinkState.CONNECTING)


def is_settled(host: HostView, now: float) -> bool:
    """Whether the link has been away for so long that seconds are not shown."""
    return is_away(host) and now - host.since >= SETTLED_SECONDS


def age_seconds(host: HostView, now: float, covered: bool) -> float:
    """Between two steps of a screen's clock and ages; ``covered`` says that it lies under a dialog."""
    if covered:
        return COVERED_AGE_SECONDS
    if is_away(host):
        return next(step for limit, step in AWAY_AGE_SECONDS if now - host.since < limit)
    return AGE_SECONDS
