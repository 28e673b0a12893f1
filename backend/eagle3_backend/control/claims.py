"""Which of the panels that are open on this laptop calls the person: whoever claims an alert first in the shared store.

A claim has to be kept. Who dies before the person was called keeps it no more, and another panel that saw the alert
calls instead. A panel that dies between the call and its note of that makes it be called twice, never not at all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from eagle3_backend.control.alerts import CALM_SECONDS, Alert
from eagle3_backend.runs.store import Store

LEASE_SECONDS = 20.0
"""How long a claim lasts that is not kept; it is kept every few seconds."""
SHOWN_SECONDS = 1.0
"""A face has shown an event by then."""
SLACK_SECONDS = 10.0
"""Two panels do not see the same at the same time: a trouble that came back is new to the store a little earlier."""


class Claims:
    """Belongs to control's event loop. ``place`` names the host and the workspace that alerts are about."""

    def __init__(self, store: Store, place: str, owner: str) -> None:
        self._store = store
        self._place = place
        self._owner = owner
        self._mine: dict[str, float] = {}
        self._theirs: dict[str, tuple[Alert, float]] = {}

    def claim(self, alert: Alert, at: float) -> bool:
        """Whether to call for an alert that was seen at ``at`` (wall time); one of somebody else is remembered."""
        calm = math.inf if alert.is_end else CALM_SECONDS - SLACK_SECONDS
        return self._asked(alert, at, at, calm)

    def told(self, name: str) -> None:
        """The person was called, or could not be."""
        self._mine.pop(name, None)
        self._store.note_told((self._place, name), self._owner)

    def tell_shown(self, now: float) -> None:
        """What was mine to tell and is shown since is told: for where nothing else has to be sent."""
        for name in [name for name, at in self._mine.items() if now - at > SHOWN_SECONDS]:
            self.told(name)

    def keep(self, ages: Mapping[str, float]) -> list[tuple[Alert, float]]:
        """Keep what is mine; the alerts, and when each was seen, that nobody has called for and that are mine now.

        ``ages`` tells how many seconds ago each trouble was seen last.
        """
        now = time.time()
        seen = {name: now - age for name, age in ages.items()}
        if seen or self._mine:
            self._store.keep_notes(self._place, seen, self._owner, now + LEASE_SECONDS)
        waiting, self._theirs = self._theirs, {}
        return [(alert, at) for alert, at in waiting.values() if self._asked(alert, at, now, math.inf)]

    def _asked(self, alert: Alert, at: float, now: float, calm: float) -> bool:
        note = (self._place, alert.name)
        whose = self._store.claim_note(note, self._owner, now, calm=calm, lease=LEASE_SECONDS)
        if whose == "mine":
            self._mine[alert.name] = now
        elif whose == "theirs":
            self._theirs[alert.name] = (alert, at)
        return whose == "mine"
