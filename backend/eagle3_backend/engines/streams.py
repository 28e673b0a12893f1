"""A chat completion of vLLM as it streams in: what it says in the end, and when each part of it came.

SGLang's stream tells neither token ids nor drafting (it refuses to), so its answers are asked for as a whole.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.engines.answers import Answer, Prompt, Steps, chat_body

STREAMING = ("vllm",)
"""Engines whose stream tells token ids, and at its end the verify steps."""


def stream_body(engine: str, model: str, prompt: Prompt, max_new_tokens: int) -> Dict[str, Any]:
    """The request of `chat_body` as a stream. Verify steps come with the usage, so that is asked for."""
    body = chat_body(engine, model, prompt, max_new_tokens)
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def event_of(line: bytes) -> Optional[Dict[str, Any]]:
    """The object of a line of server-sent events; None for other lines and for the stream's end. Raises ValueError."""
    text = line.strip()
    if not text.startswith(b"data:") or text == b"data: [DONE]":
        return None
    return dict(json.loads(text[len(b"data:") :]))


class Stream:
    """Collects the events of one streamed answer to ``prompt``."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._asked: Tuple[int, ...] = ()
        self._tokens: List[int] = []
        self._words: List[str] = []
        self._arrivals: List[Tuple[float, int]] = []
        self._finish = ""
        self._generated = 0
        self._steps = Steps()

    def take(self, event: Mapping[str, Any], seconds: float) -> None:
        """One event, ``seconds`` after the request. Raises ValueError for one that tells of an error."""
        if "error" in event:
            raise ValueError(f"the stream broke off: {event['error']}")
        self._asked = tuple(event.get("prompt_token_ids") or ()) or self._asked
        for choice in event.get("choices") or ():
            tokens = choice.get("token_ids") or ()
            if tokens:
                self._arrivals.append((seconds, len(tokens)))
                self._tokens += tokens
            self._words.append(str((choice.get("delta") or {}).get("content") or ""))
            self._finish = str(choice.get("finish_reason") or self._finish)
        self._generated = int((event.get("usage") or {}).get("completion_tokens") or self._generated)
        told = (event.get("metrics") or {}).get("speculative_decoding") or {}
        if told:
            self._steps = Steps.of_order(told.get("per_step_accepted") or ())

    def answer(self, seconds: float) -> Answer:
        """The whole, ``seconds`` after the request. Raises ValueError where the stream ended before its answer did."""
        if not self._finish:
            raise ValueError("the stream ended before the answer did")
        return Answer(
            prompt=self._prompt,
            prompt_tokens=self._asked,
            tokens=tuple(self._tokens),
            text="".join(self._words),
            finish_reason=self._finish,
            seconds=seconds,
            steps=self._steps,
            generated=self._generated or len(self._tokens),
            arrivals=tuple(self._arrivals),
        )
