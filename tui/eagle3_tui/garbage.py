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
LONG_SECONDS = 0.01
"""CPU of a collection that is too long to meet a key."""
NEVER = 1_000_000


def begin_process() -> None:
    """Once all is imported. A collection of old garbage takes as long as a key: from now on only `Garbage` asks for it.

    What is there already is never looked at again.
    """
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)


class Garbage:
    """Times are monotonic seconds, those of ``cpu`` the thread's."""

    def __init__(self, now: float, cpu: Callable[[], float] = time.thread_time) -> None:
        self._collected = now
        self._cpu = cpu

    def begin(self) -> None:
        """The first frame is out: its widgets stay as long as the panel."""
        if gc.get_freeze_count():  # a process that opens many panels one after the other has not begun with a freeze
            gc.freeze()
        gc.enable()

    def tick(self, now: float, *, settled: bool) -> None:
        """Collect old garbage if nothing did for long."""
        if now - self._collected >= EVERY_SECONDS:
            self.collect(now, settled=settled)

    def collect(self, now: float, *, settled: bool) -> None:
        """Collect old garbage; ``settled`` says that no screen is open that will be left."""
        self._collected = now
        # Textual remembers two colours of a widget for the last 1024 that were drawn, and with them all that it drew
        # (8.2): 80 kB each, long after their screens are gone.
        StylesCache.get_inner_outer.cache_clear()
        begun = self._cpu()
        gc.collect()
        # It takes as long as there is much that lives: what control and the screens have imported meanwhile.
        if settled and self._cpu() - begun >= LONG_SECONDS and gc.get_freeze_count():
            gc.freeze()
