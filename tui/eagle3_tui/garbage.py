"""When the collector of cyclic garbage may stop the panel: in a pause between keys, and before there is much of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from textual._styles_cache import StylesCache

QUIET_SECONDS = 0.5
"""No key for so long is a pause, and another collection: a screen that was left is garbage."""
EVERY_SECONDS = 60.0
"""Between two collections while nobody presses a key, and the longest that keys may put one off."""
MANY = 100_000
"""New objects, those of half a dozen screens, that are not left to a pause."""
RESIZES = 10
"""After so many, whatever else: a layout for another size leaves a lot."""
LONG_SECONDS = 0.01
"""CPU of a collection that is too long to meet a key."""
THRESHOLDS = 20_000, 10, 1_000_000
"""New objects that Python collects among (700 by itself: two dozen times while a screen opens), times that it does so
before it looks at those that stayed, and those times before it looks at all: never."""


def begin_process() -> None:
    """Once all is imported. A collection of old garbage takes as long as a key: from now on only `Garbage` asks for it.

    What is there already is never looked at again.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


class Garbage:
    """Times are monotonic seconds, those of ``cpu`` the thread's."""

    def __init__(self, now: float, cpu: Callable[[], float] = time.thread_time) -> None:
        self._collected = now
        self._resizes = 0
        self._cpu = cpu

    def begin(self) -> None:
        """The first frame is out: its widgets stay as long as the panel."""
        if gc.get_freeze_count():  # a process that opens many panels one after the other has not begun with a freeze
            gc.freeze()
        gc.enable()

    def tick(self, now: float, *, settled: bool) -> None:
        """Collect old garbage if nothing did for long, or there is much that is new."""
        if now - self._collected >= EVERY_SECONDS or gc.get_count()[0] >= MANY:
            self.collect(now, settled=settled)

    def pressed(self) -> None:
        """A key came: not even young garbage is collected before the next pause, or before there is too much."""
        gc.disable()

    def resized(self, now: float) -> None:
        """The terminal has another size: while somebody drags its edge there is no pause."""
        self._resizes += 1
        if self._resizes >= RESIZES:
            self.collect(now, settled=False)

    def collect(self, now: float, *, settled: bool) -> None:
        """Collect old garbage; ``settled`` says that no screen is open that will be left."""
        self._collected, self._resizes = now, 0
        # Textual remembers two colours of a widget for the last 1024 that were drawn, and with them all that it drew
        # (8.2): 80 kB each, long after their screens are gone.
        StylesCache.get_inner_outer.cache_clear()
        begun = self._cpu()
        gc.collect()
        gc.enable()
        # It takes as long as there is much that lives: what control and the screens have imported meanwhile.
        if settled and self._cpu() - begun >= LONG_SECONDS and gc.get_freeze_count():
            gc.freeze()
