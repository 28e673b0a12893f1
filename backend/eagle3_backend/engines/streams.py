"""A chat completion as it streams in: what it says in the end, and when each part of it came.

vLLM tells token ids with each part and the verify steps at the end. SGLang refuses both by those names; it counts the
tokens in the usage of each part, and tells ids and drafting in an extension of its last parts (0.5.23 does, older
releases pass over what they do not know).
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from eagle3_backend.drafter.capabilities import Version
from eagle3_backend.engines.answers import Answer, Prompt, Steps, chat_body

_SGLANG_SINCE = Version("0.5.23")
"""Ids (sgl-project/sglang#34488) and verify steps (sgl-project/sglang#33518) of a streamed answer: this release has
both, older ones were not looked at."""

_SGLANG = ("return_spec_tokens_details", "return_input_ids_in_sglext", "return_output_ids_in_sglext")


def tells_enough(engine: str, version: str) -> bool:
    """Whether the stream of this release tells what its whole answers do: token ids, and at its end the verify steps.
    vLLM's does in every release that a bench starts."""
    if engine != "sglang":
        return True
    try:
        return Version(version) >= _SGLANG_SINCE
    except ValueError:
        return False


def stream_body(engine: str, model: str, prompt: Prompt, max_new_tokens: int) -> Dict[str, Any]:
    """The request of `chat_body` as a stream. Verify steps come with the usage, so that is asked for."""
    body = {**chat_body(engine, model, prompt, max_new_tokens), "stream": True}
    if engine != "sglang":
        return {**body, "stream_options": {"include_usage": True}}
    body = {name: value for name, value in body.items() if name not in ("return_token_ids", "return_meta_info")}
    usage = {"include_usage": True, "continuous_usage_stats": True}
    return {**body, **dict.fromkeys(_SGLANG, True), "stream_options": usage}


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
        counted = int((event.get("usage") or {}).get("completion_tokens") or 0)
        for choice in event.get("choices") or ():
            tokens = choice.get("token_ids") or ()
            came = len(tokens) or counted - self._generated
            if came > 0:
                self._arrivals.append((seconds, came))
                self._tokens += tokens
            self._words.append(str((choice.get("delta") or {}).get("content") or ""))
            self._finish = str(choice.get("finish_reason") or self._finish)
        self._generated = counted or self._generated
        self._take_extension(event.get("sglext") or {})
        told = (event.get("metrics") or {}).get("speculative_decoding") or {}
        if told:
            self._steps = Steps.of_order(told.get("per_step_accepted") or ())

    def _take_extension(self, told: Mapping[str, Any]) -> None:
        """What SGLang tells besides: ids of the prompt and of each choice, and the drafting."""
        self._asked = tuple(told.get("input_ids") or ()) or self._asked
        self._tokens = list((told.get("output_ids") or [()])[0]) or self._tokens
        if told.get("spec_tokens_details"):
            self._steps = Steps.of_meta(told["spec_tokens_details"])

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


def read_stream(prompt: Prompt, lines: Iterable[bytes], begin: float) -> Answer:
    """The answer to `stream_body`, whose request was sent at ``begin`` (monotonic seconds). Raises ValueError for a
    stream that broke off."""
    stream = Stream(prompt)
    for line in lines:
        event = event_of(line)
        if event is not None:
            stream.take(event, time.monotonic() - begin)
    return stream.answer(time.monotonic() - begin)
