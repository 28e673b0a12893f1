"""A client for one engine on this host: chat completions with exact token ids, the version, and the metrics page."""

from __future__ import annotations

import time
from collections.abc import Callable

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, chat_body, raw_request, read_answer, read_raw
from eagle3_backend.engines.metrics import Scrape, parse
from eagle3_backend.engines.plan import SERVED_NAME
from eagle3_backend.engines.streams import read_stream, stream_body
from eagle3_backend.stages.engine_http import RequestRefused, lines, page, request

VERSIONS = {"vllm": "/version", "sglang": "/server_info"}
"""The page on which each engine tells its version."""


class Client:
    """Talks to the server of ``engine`` on 127.0.0.1:``port``. Methods raise RequestRefused, or OSError when it is
    gone."""

    def __init__(self, port: int, api_key: str, engine: str = "vllm") -> None:
        self._at = (port, api_key)
        self._engine = engine

    def version(self) -> str:
        return str(request(*self._at, "GET", VERSIONS[self._engine])["version"])

    def scrape(self) -> Scrape:
        return parse(page(*self._at, "/metrics"))

    def chat(self, prompt: Prompt, max_new_tokens: int) -> Answer:
        """Greedy answer to one user message."""
        start = time.monotonic()
        body = chat_body(self._engine, SERVED_NAME, prompt, max_new_tokens)
        answer = request(*self._at, "POST", "/v1/chat/completions", body)
        return read_answer(self._engine, prompt, answer, time.monotonic() - start)

    def streamed(self, prompt: Prompt, max_new_tokens: int) -> Answer:
        """As `chat`, with the time at which each part came."""
        start = time.monotonic()
        body = stream_body(self._engine, SERVED_NAME, prompt, max_new_tokens)
        try:
            return read_stream(prompt, lines(*self._at, "/v1/chat/completions", body), start)
        except ValueError as problem:
            raise ConnectionError(str(problem)) from problem

    def raw(self, prompt: Prompt, max_new_tokens: int) -> Answer:
        """What the model goes on with after the prompt's bare text, without the chat template."""
        start = time.monotonic()
        path, body = raw_request(self._engine, SERVED_NAME, prompt, max_new_tokens)
        answer = request(*self._at, "POST", path, body)
        return read_raw(self._engine, prompt, answer, time.monotonic() - start)


Asking = Callable[[Prompt, int], Answer]
"""One of a client's methods that ask."""


def or_refusal(ask: Asking, prompt: Prompt, max_new_tokens: int) -> Answer | Refusal:
    """As ``ask``, with a request that the engine finds at fault (status 400: too long) as a value."""
    try:
        return ask(prompt, max_new_tokens)
    except RequestRefused as problem:
        if problem.status != 400:
            raise
        return Refusal(prompt, problem.text)
