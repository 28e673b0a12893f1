"""HTTP to an engine on this host, with the standard library: one request, one answer."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class RequestRefused(Exception):
    """The engine answered with a status other than 200; ``status`` and its text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}: {text[:400]}")
        self.status = status
        self.text = text


def request(
    port: int, api_key: str, method: str, path: str, body: Any = None, timeout: float = 600.0
) -> dict[str, Any]:
    """The JSON answer of 127.0.0.1:``port``. Raises RequestRefused, or OSError when there is no whole answer.

    ``timeout`` is seconds without a byte; a request may queue behind a whole batch on a slow host.
    """
    return dict(json.loads(_exchange(port, api_key, method, path, body, timeout)))


def page(port: int, api_key: str, path: str, timeout: float = 60.0) -> str:
    """A text page, such as ``/metrics``; raises as `request`."""
    return _exchange(port, api_key, "GET", path, None, timeout).decode("utf-8", "replace")


def command(port: int, api_key: str, path: str, body: Any, timeout: float = 600.0) -> None:
    """POST whose answer is its status alone; raises as `request`."""
    _exchange(port, api_key, "POST", path, body, timeout)


def lines(port: int, api_key: str, path: str, body: Any, timeout: float = 600.0) -> Iterator[bytes]:
    """The lines of a streamed answer as they come; raises as `request`."""
    with _answering(port, api_key, "POST", path, body, timeout) as response:
        yield from iter(response.readline, b"")


def _exchange(port: int, api_key: str, method: str, path: str, body: Any, timeout: float) -> bytes:
    with _answering(port, api_key, method, path, body, timeout) as response:
        return bytes(response.read())


def in_background(ask: Callable[[], T]) -> Future[T]:
    """The answer to come. Whoever watches over a server must not wait for one that hangs: a stop would wait, too."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(ask())
        except BaseException as problem:
            future.set_exception(problem)

    threading.Thread(target=work, name="engine-request", daemon=True).start()
    return future


@contextmanager
def _answering(
    port: int, api_key: str, method: str, path: str, body: Any, timeout: float
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RequestRefused(response.status, response.read().decode("utf-8", "replace"))
        yield response
    except http.client.HTTPException as problem:
        raise ConnectionError(f"the engine broke off its answer: {problem!r}") from problem
    finally:
        connection.close()
