"""A session with a served endpoint, through a tunnel that someone else holds: completions and live acceptance."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from eagle3_backend.engines.metrics import Scrape, Window, parse, window
from eagle3_backend.findings import Finding, FindingError, error

TIMEOUT = 120.0
"""Longest wait for one answer, seconds: a first completion on a busy CPU takes tens of seconds."""


@dataclass(frozen=True)
class Endpoint:
    """Where the laptop reaches a served model: the tunnel's local ``port``, and what the stage's endpoint.json says."""

    port: int
    api_key: str = field(repr=False)
    model: str


@dataclass(frozen=True)
class Completion:
    """An answer of the endpoint: its text, generated tokens, and wall seconds as the laptop saw them."""

    text: str
    tokens: int
    seconds: float
    finish_reason: str


class EndpointSession:
    """One served endpoint. ``scrape`` gives the text of its metrics page (by tunnel or through the host's gateway)."""

    def __init__(self, endpoint: Endpoint, scrape: Callable[[], Awaitable[str]]) -> None:
        self._endpoint = endpoint
        self._scrape = scrape
        self._last: tuple[float, Scrape] | None = None

    async def complete(self, text: str, max_new_tokens: int = 32) -> Completion:
        """A greedy answer to one user message. Raises FindingError `endpoint_unreachable` or `endpoint_refused`."""
        body = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": max_new_tokens,
        }
        start = time.monotonic()
        answer = await asyncio.to_thread(self._post, "/v1/chat/completions", body)
        choice = answer["choices"][0]
        return Completion(
            text=str(choice["message"]["content"]),
            tokens=int(answer["usage"]["completion_tokens"]),
            seconds=time.monotonic() - start,
            finish_reason=str(choice["finish_reason"]),
        )

    async def next_window(self) -> Window | None:
        """What the server did since the last call; None on the first."""
        now, scraped = time.monotonic(), parse(await self._scrape())
        last, self._last = self._last, (now, scraped)
        return window(last[1], scraped, now - last[0]) if last else None

    def _post(self, path: str, body: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._endpoint.port, timeout=TIMEOUT)
        headers = {"Authorization": f"Bearer {self._endpoint.api_key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as problem:
            message = f"The endpoint does not answer: {problem!r}."
            raise FindingError(self._finding("endpoint_unreachable", message)) from problem
        finally:
            connection.close()
        if response.status != 200:
            text = content.decode("utf-8", "replace")[:400]
            raise FindingError(self._finding("endpoint_refused", f"The endpoint refused the request: {text}"))
        return json.loads(content)

    def _finding(self, code: str, message: str) -> Finding:
        return error(
            code,
            message,
            path=f"127.0.0.1:{self._endpoint.port}",
            fix="Look at the state and the log of the serve stage.",
        )
