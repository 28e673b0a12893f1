from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, Steps, ask_all
from eagle3_backend.stages.bench_client import Client, or_refusal
from eagle3_backend.stages.engine_http import RequestRefused

PAGE = 'vllm:spec_decode_num_drafts_total{engine="0"} 4.0\n'


class StandIn(BaseHTTPRequestHandler):
    """A stand-in for an engine's server: canned answers in vLLM's shape, and the ways in which it refuses."""

    gate = threading.Barrier(3)

    def do_GET(self) -> None:
        self._send(200, PAGE.encode() if self.path == "/metrics" else b'{"version": "0.32.0+cpu"}')

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = request["messages"][0]["content"]
        if text == "together":
            self.gate.wait(timeout=10)
        if text == "long":
            self._send(400, b'{"error": {"message": "maximum context length is 2048 tokens"}}')
        elif text == "broken":
            self._send(500, b"EngineDeadError")
        elif text == "gone":
            self.close_connection = True
        else:
            drafting = {"num_spec_steps": 3, "per_step_accepted": [2, 0, 1]}
            answer = {
                "prompt_token_ids": [1, 9],
                "choices": [
                    {
                        "message": {"content": "words"},
                        "token_ids": list(range(request["max_tokens"])),
                        "finish_reason": "length",
                    }
                ],
                "metrics": {"speculative_decoding": drafting} if text == "drafted" else None,
            }
            self._send(200, json.dumps(answer).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def client() -> Iterator[Client]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Client(server.server_port, "key")
    server.shutdown()
    server.server_close()


def chat(client: Client) -> Callable[[Prompt], Answer | Refusal]:
    return partial(or_refusal, client.chat, max_new_tokens=4)


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt(str(number), "file", text) for number, text in enumerate(texts)]


def test_an_answer_carries_exact_token_ids_and_accepted_tokens_by_step(client: Client) -> None:
    answer = client.chat(prompts("drafted")[0], max_new_tokens=5)
    assert answer.prompt_tokens == (1, 9)
    assert answer.tokens == (0, 1, 2, 3, 4)
    assert answer.steps == Steps(3, 3, (1, 1, 1), (2, 0, 1))
    assert answer.finish_reason == "length"


def test_without_a_drafter_there_are_no_accepted_tokens(client: Client) -> None:
    assert client.chat(prompts("plain")[0], max_new_tokens=5).steps == Steps()


def test_metrics_and_version_are_read(client: Client) -> None:
    assert client.scrape().total("vllm:spec_decode_num_drafts_total") == 4
    assert client.version() == "0.32.0+cpu"


def test_a_prompt_that_is_too_long_costs_only_itself(client: Client) -> None:
    found = {each.prompt.text: each for each in ask_all(chat(client), prompts("long", "plain"), 2, lambda: None)}
    assert isinstance(found["plain"], Answer)
    assert isinstance(found["long"], Refusal)
    assert "maximum context length" in found["long"].reason


def test_an_engine_at_fault_ends_the_whole_measurement(client: Client) -> None:
    with pytest.raises(RequestRefused, match="EngineDeadError"):
        list(ask_all(chat(client), prompts("broken"), 1, lambda: None))


def test_an_engine_that_breaks_off_is_a_connection_error(client: Client) -> None:
    with pytest.raises(ConnectionError):
        client.chat(prompts("gone")[0], 4)


def test_requests_are_in_flight_together(client: Client) -> None:
    assert len(list(ask_all(chat(client), prompts("together", "together", "together"), 3, lambda: None))) == 3


def test_a_watcher_can_leave_between_answers(client: Client) -> None:
    class Leave(Exception):
        pass

    def watch() -> None:
        raise Leave

    with pytest.raises(Leave):
        list(ask_all(chat(client), prompts("plain", "plain"), 1, watch))
