"""A conversation with a served endpoint, piece by piece as it is said: a smoke test that a person can read.

The key goes into the request's header and nowhere else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from eagle3_backend.engines.metrics import (
    GENERATED,
    SGLANG_GENERATED,
    SGLANG_VERIFIES,
    Scrape,
    drafting,
    increase,
    parse,
)
from eagle3_backend.findings import Finding, FindingError, error

SILENCE = 120.0
"""Longest wait for the next piece, seconds: a request may queue behind others."""
MAX_EVENT = 1 << 20
"""Bytes of one event that are read."""
SETTLE = (0.0, 0.05, 0.2)
"""Pauses before each try to see the answer's last tokens in the counters, seconds."""


@dataclass(frozen=True)
class Figures:
    """What an answer took. None is what the server does not tell.

    ``tokens`` by the server's own count; ``tokens_per_second`` after the first piece; ``acceptance_length`` tokens a
    verify step with the target's own, from the counters around the answer, where the server drafted for nobody else.
    """

    seconds: float
    finish_reason: str
    cancelled: bool
    seconds_to_first_token: float | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None
    acceptance_length: float | None = None


class Chat:
    """Talks to the OpenAI interface at ``base_url`` (with its ``/v1``). One answer at a time.

    ``cancel`` may be called from any thread: the connection is closed, on which both engines abort the request.
    """

    def __init__(self, base_url: str, api_key: str, model: str) -> None:
        parts = urlsplit(base_url)
        self._parts, self._path = parts, parts.path.rstrip("/")
        self._key, self._model = api_key, model
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._cancelled = False
        self.figures: Figures | None = None

    def say(
        self, messages: Sequence[Mapping[str, str]], max_tokens: int = 256, temperature: float = 0.0
    ) -> Iterator[str]:
        """The answer in pieces; afterwards ``figures`` tells what it took. Raises FindingError."""
        self._cancelled, self.figures = False, None
        before = self._scrape()
        body = {
            "model": self._model,
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        begin = time.monotonic()
        first = last = 0.0
        reason, tokens, said = "", None, 0
        try:
            for event in self._events(body):
                usage = event.get("usage")
                tokens = int(usage["completion_tokens"]) if usage else tokens
                for choice in event.get("choices") or ():
                    reason = str(choice.get("finish_reason") or reason)
                    delta = choice.get("delta") or {}
                    piece = str(delta.get("content") or delta.get("reasoning_content") or "")
                    if piece:
                        last = time.monotonic()
                        first = first or last
                        said += len(piece)
                        yield piece
        except (OSError, http.client.HTTPException, ValueError) as problem:
            if not self._cancelled:
                raise FindingError(_broken_off(problem, said)) from problem
        finally:
            self._close()
        self.figures = Figures(
            seconds=round(time.monotonic() - begin, 3),
            finish_reason="cancelled" if self._cancelled else reason,
            cancelled=self._cancelled,
            seconds_to_first_token=round(first - begin, 3) if first else None,
            tokens=tokens,
            tokens_per_second=round((tokens - 1) / (last - first), 1) if tokens and last > first else None,
            acceptance_length=self._length(before, tokens),
        )

    def cancel(self) -> None:
        """End the answer that is being said; the server stops working on it."""
        self._cancelled = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _events(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Server-sent events up to ``[DONE]``. Raises FindingError for a refusal, OSError for an end before that."""
        self._connection = connection = self._connect(SILENCE)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        connection.request("POST", f"{self._path}/chat/completions", json.dumps(body), headers)
        # Kept beside: a response that ends with its connection takes the socket over.
        self._socket = connection.sock
        response = connection.getresponse()
        if response.status != 200:
            raise FindingError(_refused(response.status, response.read(4096).decode("utf-8", "replace")))
        while line := response.readline(MAX_EVENT):
            name, _, data = line.partition(b":")
            if name != b"data":
                continue
            if data.strip() == b"[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                raise FindingError(_refused(200, json.dumps(event["error"])))
            yield event
        raise ConnectionError("the answer ended in its middle")

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind: Any = http.client.HTTPConnection
        if self._parts.scheme == "https":
            kind = partial(http.client.HTTPSConnection, context=ssl.create_default_context())
        connection: http.client.HTTPConnection = kind(self._parts.hostname, self._parts.port, timeout=timeout)
        connection.connect()
        return connection

    def _close(self) -> None:
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.close()

    def _scrape(self) -> Scrape | None:
        """The metrics page, None where there is none."""
        try:
            connection = self._connect(10.0)
            try:
                prefix = self._path.removesuffix("/v1")
                connection.request("GET", f"{prefix}/metrics", headers={"Authorization": f"Bearer {self._key}"})
                response = connection.getresponse()
                text = response.read(32 << 20).decode("utf-8", "replace")
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return None
        return parse(text) if response.status == 200 else None

    def _length(self, before: Scrape | None, tokens: int | None) -> float | None:
        """Acceptance over the answer, where the server generated its tokens and no others meanwhile."""
        if before is None or not tokens:
            return None
        for pause in SETTLE:
            time.sleep(pause)
            after = self._scrape()
            if after is None:
                return None
            grown = increase(before, after)
            generated = grown.scrape.total(GENERATED) + grown.scrape.total(SGLANG_GENERATED)
            if generated >= tokens:
                break
        if grown.reset or generated != tokens:
            return None
        if verifies := grown.scrape.total(SGLANG_VERIFIES):
            # The first token is the prefill's; SGLang counts no accepted ones.
            return round((tokens - 1) / verifies, 3)
        length = drafting(grown.scrape).length
        return None if length is None else round(length, 3)


def _broken_off(problem: Exception, said: int) -> Finding:
    lost = f"The answer broke off after {said} characters; the rest is lost" if said else "No answer came"
    return error(
        "chat_broken_off",
        f"{lost}: {problem!r}.",
        path="endpoint",
        fix="Ask again once the link is back. Is the service still at work? eagle3-tui serve --list",
    )


def _refused(status: int, text: str) -> Finding:
    if status in (401, 403):
        return error(
            "endpoint_key_refused", "The endpoint wants a key, or another one.", path="endpoint", actual=status
        )
    return error("endpoint_refused", f"The endpoint refused the request: {text[:400]}", path="endpoint", actual=status)
