"""A client for one engine on this host: chat completions with exact token ids, and the metrics page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass

from eagle3_backend.engines.metrics import Scrape, parse
from eagle3_backend.engines.plan import SERVED_NAME
from eagle3_backend.stages.engine_http import RequestRefused, page, request

POLL = 0.2
"""How often a waiting caller looks whether it should go on, seconds."""


@dataclass(frozen=True)
class Prompt:
    """One user message, the first of its conversation, after the ``system`` message where there is one."""

    id: str
    source: str
    text: str
    system: str = ""

    @property
    def messages(self) -> list[dict[str, str]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]


@dataclass(frozen=True)
class Answer:
    """What came back for a prompt: token ids as the engine saw them, and wall seconds of the whole request.

    ``accepted`` holds the accepted draft tokens of each verify step, in order; empty without a drafter.
    """

    prompt: Prompt
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    finish_reason: str
    seconds: float
    accepted: tuple[int, ...]


@dataclass(frozen=True)
class Refusal:
    """A prompt that the engine refused, with its words."""

    prompt: Prompt
    reason: str


class Client:
    """Talks to the server on 127.0.0.1:``port``. Methods raise RequestRefused, or OSError when it is gone."""

    def __init__(self, port: int, api_key: str) -> None:
        self._at = (port, api_key)

    def version(self) -> str:
        return str(request(*self._at, "GET", "/version")["version"])

    def scrape(self) -> Scrape:
        return parse(page(*self._at, "/metrics"))

    def chat(self, prompt: Prompt, max_new_tokens: int) -> Answer:
        """Greedy answer to one user message."""
        body = {
            "model": SERVED_NAME,
            "messages": prompt.messages,
            "temperature": 0,
            "max_tokens": max_new_tokens,
            "return_token_ids": True,
        }
        start = time.monotonic()
        answer = request(*self._at, "POST", "/v1/chat/completions", body)
        seconds = time.monotonic() - start
        choice = answer["choices"][0]
        drafting = (answer.get("metrics") or {}).get("speculative_decoding") or {}
        return Answer(
            prompt=prompt,
            prompt_tokens=tuple(answer["prompt_token_ids"]),
            tokens=tuple(choice["token_ids"]),
            text=str(choice["message"]["content"] or ""),
            finish_reason=str(choice["finish_reason"]),
            seconds=seconds,
            accepted=tuple(drafting.get("per_step_accepted") or ()),
        )

    def chat_or_refusal(self, prompt: Prompt, max_new_tokens: int) -> Answer | Refusal:
        """As `chat`, with a request that the engine finds at fault (status 400: too long) as a value."""
        try:
            return self.chat(prompt, max_new_tokens)
        except RequestRefused as problem:
            if problem.status != 400:
                raise
            return Refusal(prompt, problem.text)


def ask_all(
    client: Client, prompts: Sequence[Prompt], max_new_tokens: int, concurrency: int, watch: Callable[[], None]
) -> Iterator[Answer | Refusal]:
    """Answers as they come, ``concurrency`` requests in flight.

    ``watch`` is called at least every `POLL` seconds and may raise to leave; requests in flight are then left to
    end with their engine.
    """
    pool = ThreadPoolExecutor(max_workers=concurrency)
    waiting = {pool.submit(client.chat_or_refusal, prompt, max_new_tokens) for prompt in prompts}
    try:
        while waiting:
            done, waiting = wait(waiting, timeout=POLL, return_when=FIRST_COMPLETED)
            watch()
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
