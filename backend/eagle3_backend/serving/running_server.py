"""A server of either engine that this product did not start, reached by its URL: who it is, and what it answers."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, chat_body, read_answer
from eagle3_backend.engines.metrics import Scrape, parse, sglang_server_length
from eagle3_backend.engines.streams import read_stream, stream_body
from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.serving.chat import Chat

SECONDS = 30.0
"""Longest silence of a page."""
ANSWER_SECONDS = 600.0
"""Longest silence of an answer: it may queue behind a whole batch."""
MAX_BYTES = 32 << 20
"""Longest answer, or event of a streamed one, that is read."""
PROBE = Prompt("probe", "probe", "Count from one to twenty.")
PROBE_TOKENS = 16


@dataclass(frozen=True)
class Identity:
    """What a server says of itself; None is not told. ``drafter`` is the directory or name that it drafts with,
    ``max_running`` the requests that it works on at once."""

    engine: str
    version: str
    model: str
    context: int | None = None
    dtype: str | None = None
    method: str | None = None
    depth: int | None = None
    drafter: str | None = None
    mean_length: float | None = None
    max_running: int | None = None


class Refused(Exception):
    """A status other than 200, with its text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}: {text[:400]}")
        self.status, self.text = status, text


class NoStream(Exception):
    """An answer that is no stream of events, or tells less than a whole one; says why."""


class RunningServer:
    """The server at ``url`` (with or without ``/v1``). Methods raise FindingError."""

    def __init__(self, url: str, api_key: str = "", model: str = "") -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FindingError(
                error(
                    "endpoint_url_invalid",
                    f"'{url}' is no URL of a server.",
                    path="endpoint",
                    expected="http://HOST:PORT",
                    actual=url,
                )
            )
        self.url = url
        self._parts, self._prefix = parts, parts.path.rstrip("/").removesuffix("/v1")
        self._key, self._model = api_key, model
        self._open: set[socket.socket] = set()
        self.identity = self.identify()

    def chat(self, prompt: Prompt, max_new_tokens: int, salt: str = "") -> Answer | Refusal:
        """Greedy answer to one user message; a prompt that the server finds at fault (status 400) is a value.

        With a ``salt`` of its own a request takes nothing from the prefix cache.
        """
        body = _salted(chat_body(self.identity.engine, self.identity.model, prompt, max_new_tokens), salt)
        begin = time.monotonic()
        try:
            answer = json.loads(self._exchange("POST", "/v1/chat/completions", body, ANSWER_SECONDS))
            return read_answer(self.identity.engine, prompt, answer, time.monotonic() - begin)
        except Refused as problem:
            return self._refused(prompt, problem)
        except (ValueError, KeyError, IndexError, TypeError) as problem:
            raise FindingError(self._no_engine(f"its answer is no completion ({problem!r})")) from problem

    def streamed(self, prompt: Prompt, max_new_tokens: int, salt: str = "") -> Answer | Refusal:
        """As `chat`, with the time at which each part came. Only of a server whose `why_whole` is empty."""
        try:
            return self._stream(prompt, max_new_tokens, salt)
        except Refused as problem:
            return self._refused(prompt, problem)
        except NoStream as problem:
            raise FindingError(self._no_engine(str(problem))) from problem

    def why_whole(self) -> str:
        """Why answers have to be asked for as a whole: what is missing in its stream of a short one; empty: nothing."""
        try:
            answer = self._stream(PROBE, PROBE_TOKENS, "")
        except (Refused, NoStream) as problem:
            if isinstance(problem, Refused) and problem.status != 400:
                raise FindingError(self._refusal(problem)) from problem
            return f"it refuses to ({problem})" if isinstance(problem, Refused) else str(problem)
        if not answer.arrivals:
            return "its stream does not tell the tokens of each part"
        if self.identity.engine == "sglang" and self.identity.method and not answer.steps.count:
            return "its stream does not tell verify steps, as its whole answers do"
        return ""

    def look(self) -> None:
        """Raises FindingError when nobody answers there."""
        with suppress(Refused):
            self._exchange("GET", "/v1/models")

    def hang_up(self) -> None:
        """Break off every request, from any thread: both engines end their work on it, and whoever waits is told."""
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def conversation(self) -> Chat:
        """To talk to it, piece by piece."""
        base = f"{self._parts.scheme}://{self._parts.netloc}{self._prefix}/v1"
        return Chat(base, self._key, self.identity.model)

    def scrape(self) -> Scrape:
        """The metrics page."""
        try:
            scrape = parse(self._exchange("GET", "/metrics").decode("utf-8", "replace"))
        except Refused as problem:
            raise FindingError(_no_metrics(self.url, problem.status)) from problem
        prefix = "vllm:" if self.identity.engine == "vllm" else "sglang:"
        if not any(name.startswith(prefix) for name, _ in scrape.samples):
            raise FindingError(_no_metrics(self.url, 200))
        return scrape

    def identify(self) -> Identity:
        """Who answers there now."""
        listed = self._list_models()
        info = self._page("/server_info")
        if info.get("internal_states") is not None:
            steps = info.get("speculative_num_steps")
            return Identity(
                engine="sglang",
                version=str(info.get("version") or ""),
                model=self._chosen(listed),
                context=_whole(info.get("context_length")) or _context(listed),
                dtype=info.get("dtype"),
                method=_lower(info.get("speculative_algorithm")),
                depth=_whole(steps),
                drafter=info.get("speculative_draft_model_path"),
                mean_length=sglang_server_length(info),
                max_running=_max_running(info["internal_states"]),
            )
        version = self._page("/version").get("version")
        if not version:
            raise FindingError(self._no_engine("neither /server_info nor /version tells a version"))
        return Identity("vllm", str(version), self._chosen(listed), _context(listed))

    def _list_models(self) -> list[dict[str, Any]]:
        try:
            listed = json.loads(self._exchange("GET", "/v1/models"))["data"]
            return [entry for entry in listed if isinstance(entry["id"], str)]
        except Refused as problem:
            raise FindingError(self._refusal(problem)) from problem
        except (ValueError, KeyError, TypeError) as problem:
            raise FindingError(self._no_engine("/v1/models is no list of models")) from problem

    def _chosen(self, listed: list[dict[str, Any]]) -> str:
        names = [str(entry["id"]) for entry in listed]
        if self._model in names or (names and not self._model):
            return self._model or names[0]
        raise FindingError(
            error(
                "endpoint_model_missing",
                f"{self.url} does not serve the model '{self._model}'.",
                path="model",
                expected=self._model,
                actual=names,
                fix="Name one of those that it serves with --model.",
            )
        )

    def _page(self, path: str) -> dict[str, Any]:
        """A JSON object; {} where there is no such page."""
        try:
            found = json.loads(self._exchange("GET", path))
        except (Refused, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _stream(self, prompt: Prompt, max_new_tokens: int, salt: str) -> Answer:
        """A streamed answer. Raises Refused, NoStream, FindingError."""
        body = _salted(stream_body(self.identity.engine, self.identity.model, prompt, max_new_tokens), salt)
        begin = time.monotonic()
        try:
            with self._answering("POST", "/v1/chat/completions", body, ANSWER_SECONDS) as response:
                if not str(response.getheader("Content-Type")).startswith("text/event-stream"):
                    raise NoStream("it answers as a whole, though it is asked for a stream")
                return read_stream(prompt, iter(partial(response.readline, MAX_BYTES), b""), begin)
        except (KeyError, IndexError, TypeError, AttributeError) as problem:
            raise FindingError(self._no_engine(f"its stream is no completion ({problem!r})")) from problem

    def _exchange(self, method: str, path: str, body: Any = None, timeout: float = SECONDS) -> bytes:
        """The content of a page. Raises Refused, FindingError."""
        with self._answering(method, path, body, timeout) as response:
            return bytes(response.read(MAX_BYTES))

    @contextmanager
    def _answering(self, method: str, path: str, body: Any, timeout: float) -> Iterator[http.client.HTTPResponse]:
        """A response of status 200. Raises Refused, and FindingError for whatever breaks off while it is read."""
        kind: Any = http.client.HTTPConnection
        if self._parts.scheme == "https":
            kind = partial(http.client.HTTPSConnection, context=ssl.create_default_context())
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            connection = kind(self._parts.hostname, self._parts.port, timeout=timeout)
            connection.connect()
            # Kept beside: a response that ends with its connection takes the socket over.
            held: socket.socket = connection.sock
            self._open.add(held)
            try:
                connection.request(method, self._prefix + path, None if body is None else json.dumps(body), headers)
                response = connection.getresponse()
                if response.status != 200:
                    raise Refused(response.status, response.read(MAX_BYTES).decode("utf-8", "replace"))
                yield response
            finally:
                self._open.discard(held)
                connection.close()
        except (OSError, ValueError, http.client.HTTPException) as problem:
            raise FindingError(
                error(
                    "endpoint_unreachable",
                    f"{self.url} does not answer: {problem!r}.",
                    path="endpoint",
                    actual=self.url,
                    fix="Is it reachable from here? A server on the loopback of the profile's host is HOST:PORT, which "
                    "opens a tunnel; of another host, ssh -L PORT:127.0.0.1:PORT HOST does.",
                )
            ) from problem

    def _refused(self, prompt: Prompt, problem: Refused) -> Refusal:
        """A prompt at fault as a value. Raises FindingError for every other refusal."""
        if problem.status == 400:
            return Refusal(prompt, problem.text)
        raise FindingError(self._refusal(problem)) from problem

    def _refusal(self, problem: Refused) -> Finding:
        if problem.status in (401, 403):
            return error(
                "endpoint_key_refused",
                f"{self.url} wants a key, or another one.",
                path="endpoint",
                actual=problem.status,
                fix="Put the key into a variable and name it with --key-env.",
            )
        return error(
            "endpoint_refused",
            f"{self.url} refused the request: {problem.text[:400]}",
            path="endpoint",
            actual=problem.status,
        )

    def _no_engine(self, why: str) -> Finding:
        return error(
            "endpoint_engine_unknown",
            f"{self.url} is no server of vLLM or SGLang that could be recognised: {why}.",
            path="endpoint",
            expected=["vllm", "sglang"],
            actual=self.url,
            fix="Give the server's own URL: a router or gateway in front of it hides what is needed.",
        )


def _salted(body: dict[str, Any], salt: str) -> dict[str, Any]:
    """Both engines know the name; a release that does not passes it over."""
    return {**body, "cache_salt": salt} if salt else body


def _max_running(states: Any) -> int | None:
    """Requests that all schedulers of SGLang work on at once."""
    told = [_whole(state.get("effective_max_running_requests_per_dp")) for state in states]
    return sum(each for each in told if each) or None


def _context(listed: list[dict[str, Any]]) -> int | None:
    return next((entry["max_model_len"] for entry in listed if isinstance(entry.get("max_model_len"), int)), None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _lower(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _no_metrics(url: str, status: int) -> Finding:
    return error(
        "endpoint_metrics_absent",
        f"{url} has no metrics of its engine at /metrics: acceptance cannot be counted.",
        path="endpoint",
        expected="vllm: or sglang: samples",
        actual=status,
        fix="SGLang needs --enable-metrics, vLLM must not have --disable-log-stats; a router has other metrics.",
    )
