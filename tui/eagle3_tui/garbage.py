"""When the collector of cyclic garbage may stop the panel: in a pause between keys, and before there is much of it."""

from __future__ import annotations

import gc

SOON_SECONDS = 2.0
"""Between two collections while the operator is at work: a screen that was left is garbage."""
EVERY_SECONDS = 60.0
"""Between two collections while nobody is, and the longest that keys may put one off."""
QUIET_SECONDS = 0.5
"""No key for so long is a pause."""
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
        self._kept: bool | None = None  # what control brought: not there yet, there, frozen

    def begin(self) -> None:
        """The first frame is out: its widgets stay as long as the panel."""
        if gc.get_freeze_count():  # a process that opens many panels one after the other has not begun with a freeze
            gc.freeze()
        gc.enable()

    def arrived(self) -> None:
        """A host is reached: all that control imports for that is there, and stays as long as the panel."""
        if self._kept is None:
            self._kept = False

    def pressed(self, now: float) -> None:
        """A key came."""
        self._pressed = now

    def tick(self, now: float) -> None:
        """Collect old garbage if it is time for it."""
        since = now - self._collected
        pause = self._pressed > self._collected and now - self._pressed >= QUIET_SECONDS
        if since >= EVERY_SECONDS or (pause and since >= SOON_SECONDS):
            self._collected = now
            gc.collect()
            if self._kept is False and gc.get_freeze_count():
                # Some 35,000 objects, more than the panel makes. A screen that is open right now stays with them.
                self._kept = True
                gc.freeze()
