"""A plain JSON POST for each alert, to an address that the operator gave; nobody waits for it."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 10.0
PAUSES = (0.0, 1.0, 4.0)
"""Seconds before each try."""
WAITING = 64
"""Alerts that may wait for a slow receiver; more are told of as not delivered."""


class Webhook:
    """Posts one after the other on a thread that keeps no program alive.

    ``failed`` is called on that thread with one line for a person. The address may hold a token, so that no line has
    more of it than the host's name.
    """

    def __init__(
        self,
        url: str,
        failed: Callable[[str], None],
        *,
        timeout: float = TIMEOUT_SECONDS,
        pauses: tuple[float, ...] = PAUSES,
    ) -> None:
        self._url = url
        self._failed = failed
        self._timeout = timeout
        self._pauses = pauses
        self._waiting: queue.Queue[tuple[bytes, Callable[[], None]] | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None

    def post(self, told: Mapping[str, Any], settled: Callable[[], None] = lambda: None) -> None:
        """Send ``told`` soon. Returns at once; ``settled`` is called once it was sent or given up, on any thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="webhook", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait((json.dumps(told, default=str).encode(), settled))
        except queue.Full:
            self._failed(f"{self._name} is too slow: an alert was not sent")
            settled()

    def close(self) -> None:
        """Take no more; what waits is still tried while the program lives."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            pass

    @property
    def _name(self) -> str:
        return f"the webhook at {urlsplit(self._url).hostname}"

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            data, settled = waiting
            trouble = ""
            for pause in self._pauses:
                time.sleep(pause)
                trouble = self._try(data)
                if not trouble:
                    break
            if trouble:
                self._failed(f"{self._name} was not reached: {trouble}")
            settled()

    def _try(self, data: bytes) -> str:
        """What went wrong, in words that hold nothing of the address."""
        headers = {"Content-Type": "application/json", "User-Agent": "eagle3-tui"}
        try:
            request = urllib.request.Request(self._url, data, headers, method="POST")
            with urllib.request.build_opener(_StayHere).open(request, timeout=self._timeout):
                return ""
        except urllib.error.HTTPError as problem:
            with problem:
                return f"it answered {problem.code}"
        except urllib.error.URLError as problem:
            reason = problem.reason
            return str(reason.strerror or "timed out") if isinstance(reason, OSError) else "the address is unusable"
        except TimeoutError:
            return "it did not answer in time"
        except (OSError, ValueError, http.client.HTTPException) as problem:
            return getattr(problem, "strerror", None) or type(problem).__name__


class _StayHere(urllib.request.HTTPRedirectHandler):
    """A redirect would take the message to a host that nobody named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
