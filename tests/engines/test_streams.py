from __future__ import annotations

import json

import pytest

from eagle3_backend.engines.answers import Prompt
from eagle3_backend.engines.streams import Stream, event_of, stream_body, tells_enough

PROMPT = Prompt("1", "file", "Say it.")
EVENTS = [
    {"prompt_token_ids": [1, 9], "choices": [{"delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"delta": {"content": "wo"}, "token_ids": [5, 6]}]},
    {"choices": [{"delta": {"content": ""}, "token_ids": [7]}]},
    {"choices": [{"delta": {"content": "rd"}, "token_ids": [8, 2], "finish_reason": "stop"}]},
    {"choices": [], "usage": {"completion_tokens": 5}, "metrics": {"speculative_decoding": {"per_step_accepted": [1]}}},
]


def test_a_streamed_answer_tells_what_came_when_and_its_verify_steps() -> None:
    stream = Stream(PROMPT)
    for number, event in enumerate(EVENTS):
        stream.take(event, 0.5 * number)
    answer = stream.answer(3.0)
    assert (answer.prompt_tokens, answer.tokens, answer.text) == ((1, 9), (5, 6, 7, 8, 2), "word")
    assert answer.arrivals == ((0.5, 2), (1.0, 1), (1.5, 2)) and answer.gaps == [0.5, 0.5]
    assert (answer.steps.in_order, answer.generated, answer.finish_reason) == ((1,), 5, "stop")


def test_a_stream_that_broke_off_is_no_answer() -> None:
    stream = Stream(PROMPT)
    for event in EVENTS[:3]:
        stream.take(event, 1.0)
    with pytest.raises(ValueError, match="ended before"):
        stream.answer(2.0)
    with pytest.raises(ValueError, match="died"):
        stream.take({"error": {"message": "the engine died"}}, 2.0)


def test_lines_that_are_no_events_are_passed_over() -> None:
    lines = [b"\n", b": ping\n", b"data: [DONE]\n", b'data: {"choices": []}\n']
    assert [event_of(line) for line in lines] == [None, None, None, {"choices": []}]
    with pytest.raises(ValueError):
        event_of(b"data: {\n")


def test_of_sglang_only_releases_whose_stream_tells_ids_and_steps_are_streamed() -> None:
    told = [tells_enough("sglang", version) for version in ("0.5.23", "0.5.23.post1", "0.6", "0.5.22", "", "main")]
    assert told == [True, True, True, False, False, False] and tells_enough("vllm", "0.26.0")


def test_verify_steps_are_asked_for_with_the_usage() -> None:
    body = stream_body("vllm", "target", PROMPT, 8)
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}
    assert body["return_token_ids"] is True and json.dumps(body)
