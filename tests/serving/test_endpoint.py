from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.serving.endpoint import Endpoint, EndpointSession


class StandIn(BaseHTTPRequestHandler):
    """A stand-in for an engine's server: checks the key and answers one canned completion."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        allowed = self.headers["Authorization"] == "Bearer right"
        answer = {
            "choices": [{"message": {"content": "Paris."}, "finish_reason": "stop"}],
            "usage": {"completion_tokens": 3},
        }
        content = json.dumps(answer if allowed else {"error": "Unauthorized"}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


async def nothing() -> str:
    return ""


async def test_a_completion_comes_back_through_the_tunnel(port: int) -> None:
    completion = await EndpointSession(Endpoint(port, "right", "target"), nothing).complete("Capital of France?")
    assert (completion.text, completion.tokens, completion.finish_reason) == ("Paris.", 3, "stop")


async def test_a_refusal_is_told_with_the_words_of_the_endpoint(port: int) -> None:
    with pytest.raises(FindingError) as caught:
        await EndpointSession(Endpoint(port, "wrong", "target"), nothing).complete("Hello")
    assert caught.value.findings[0].code == "endpoint_refused"
    assert "Unauthorized" in caught.value.findings[0].message


async def test_a_dead_endpoint_is_a_finding(port: int) -> None:
    unused = HTTPServer(("127.0.0.1", 0), StandIn)
    unused.server_close()
    with pytest.raises(FindingError) as caught:
        await EndpointSession(Endpoint(unused.server_port, "right", "target"), nothing).complete("Hello")
    assert caught.value.findings[0].code == "endpoint_unreachable"


async def test_the_key_is_not_printed_with_the_endpoint(port: int) -> None:
    assert "right" not in repr(Endpoint(port, "right", "target"))


async def test_acceptance_is_that_of_the_window_between_two_scrapes() -> None:
    names = ("spec_decode_num_drafts", "spec_decode_num_accepted_tokens", "generation_tokens")
    pages = [
        "".join(f"vllm:{name}_total {count}\n" for name, count in zip(names, counts, strict=True))
        for counts in ((10, 0, 50), (30, 10, 80))
    ]

    async def scrape() -> str:
        return pages.pop(0)

    session = EndpointSession(Endpoint(0, "", "target"), scrape)
    assert await session.next_window() is None
    window = await session.next_window()
    assert window is not None
    assert window.drafting.length == 1.5
    assert window.generated == 30
