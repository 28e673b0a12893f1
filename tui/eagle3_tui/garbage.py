"""When the collector of cyclic garbage may stop the panel: never by itself for long, and not while keys come."""

from __future__ import annotations

import gc

EVERY_SECONDS = 60.0
QUIET_SECONDS = 1.0
"""No key for this long."""
NEVER = 1_000_000


def begin_process() -> None:
    """Once all is imported. A collection of old garbage takes as long as a key: from now on only `Garbage` asks for it.

    What is there already is never looked at again.
    """
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)


class Garbage:
    """Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._collected = self._pressed = now

    def begin(self) -> None:
        """The first frame is out: its widgets stay as long as the panel."""
        if gc.get_freeze_count():  # a process that opens many panels one after the other has not begun with a freeze
            gc.freeze()
        gc.enable()

    def pressed(self, now: float) -> None:
        """A key came."""
        self._pressed = now

    def tick(self, now: float) -> None:
        """Collect old garbage now and then, while nobody presses a key."""
        if now - self._collected >= EVERY_SECONDS and now - self._pressed >= QUIET_SECONDS:
            self._collected = now
            gc.collect()
