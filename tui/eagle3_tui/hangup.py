"""Leaving for good reasons: a signal that asks for it, and a terminal that is gone, even where SIGHUP is ignored."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

STATUS = 129
"""Exit status of a panel whose terminal is gone, as if SIGHUP had ended it: 128 + 1."""

LEAVE_SECONDS = 5.0
"""How long a panel that a signal asked to end may take to restore the screen."""
END_SECONDS = 10.0
"""The same for one that leaves by itself: control may take five of them to let its hosts go."""


def leave_on_signals(leave: Callable[..., Any]) -> None:
    """On the running loop: call ``leave(None, status)`` when a signal asks us to end, so that the screen is restored.

    Where the terminal takes nothing more, that never ends: after SIGTERM and SIGHUP the process then ends without it.
    An interrupt may not be meant for us (see `lending`). A signal that our parent made us ignore stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, leave, None, 128 + number)
            if number != signal.SIGINT:
                signal.signal(number, _insisting)  # the loop hears of the signal all the same


def insist(status: int, seconds: float = END_SECONDS) -> None:
    """End this process in so many seconds if it is still there: whatever it waits for then is not worth a terminal.

    That may be output that nobody takes, or a thread that looks up a name and that Python would wait for.
    """
    timer = threading.Timer(seconds, os._exit, (status,))
    timer.daemon = True
    timer.start()


def _insisting(number: int, _: object) -> None:
    """Runs on the main thread even while its loop waits for the terminal."""
    insist(128 + number, LEAVE_SECONDS)


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
