"""A terminal that is gone: the panel leaves by itself, even where its parent made it ignore SIGHUP."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

STATUS = 129
"""Exit status of a panel whose terminal is gone, as if SIGHUP had ended it: 128 + 1."""


def leave_with_terminal(descriptor: int, let_go: Callable[[], None]) -> None:
    """End this process once the terminal behind ``descriptor`` has hung up; ``let_go`` is called before.

    Textual reads an endless end of input then, and blocks on output that nobody takes (Textual 8.2), so its loop is
    past asking: there is no screen left to restore, and runs do not depend on us.
    """

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # a hang-up is always told; nothing else wakes this thread
        poll.poll()
        try:
            let_go()
        finally:
            os._exit(STATUS)

    threading.Thread(target=watch, name="hang-up", daemon=True).start()
