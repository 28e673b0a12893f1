"""A stand-in for a Hugging Face hub: two loopback servers in this process that answer as the hub and as the store that
it redirects large files to. Addresses and fields are those that `huggingface_hub` 2.4 asks for and reads."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

COMMIT = "4f3c" * 10
TOKEN = "hf_secret-of-the-tests"


class Hub:
    """``files`` of the data set `lab/exam`; those that are ``stored`` lie in the store; ``gated``: not without the
    token. ``asked`` are (server, path, token) of all requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.stored: set[str] = set()
        self.gated = False
        self.asked: list[tuple[str, str, str]] = []
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, name)) for name in ("hub", "store")]
        self.url, self.store = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)

    def __enter__(self) -> Hub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def write(self, path: str, *records: object) -> None:
        self.files[path] = "".join(json.dumps(record) + "\n" for record in records).encode()

    def enter(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        """Make the library that is loaded here ask this hub, without a token, and keep its downloads in ``home``."""
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        resolve = self.url + "/{repo_id}/resolve/{revision}/{filename}"
        self.set(monkeypatch, ENDPOINT=self.url, HUGGINGFACE_CO_URL_TEMPLATE=resolve, HF_HUB_OFFLINE=False)
        self.set(monkeypatch, HF_HUB_CACHE=str(home / "hub"), HF_TOKEN_PATH=str(home / "token"))

    def set(self, monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
        """What the library took from the environment when it was imported."""
        for name, value in values.items():
            monkeypatch.setattr(constants, name, value)

    def cache(self, home: Path) -> None:
        """What the library leaves behind when it has downloaded everything."""
        folder = home / "hub/datasets--lab--exam"
        for path, content in self.files.items():
            file = folder / "snapshots" / COMMIT / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (folder / "refs").mkdir()
        (folder / "refs/main").write_text(COMMIT)


def _handler(hub: Hub, name: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            token = self.headers.get("Authorization", "")
            hub.asked.append((name, self.path, token))
            path = self.path.partition("?")[0].replace("/resolve/main/", f"/resolve/{COMMIT}/")
            about = "/api/datasets/lab/exam"
            resolve = f"/datasets/lab/exam/resolve/{COMMIT}/"
            file = path.removeprefix(resolve)
            if name == "store":
                self.send(200 if path[1:] in hub.files else 404, hub.files.get(path[1:], b""))
            elif hub.gated and token != f"Bearer {TOKEN}":
                self.send(401, b'{"error": "Access to this dataset is restricted"}')
            elif path in (about, f"{about}/revision/main", f"{about}/revision/{COMMIT}"):
                siblings = [{"rfilename": file, "size": len(content)} for file, content in hub.files.items()]
                self.send(200, json.dumps({"id": "lab/exam", "sha": COMMIT, "siblings": siblings}).encode())
            elif path.startswith(resolve) and file in hub.stored:
                linked = {"X-Linked-Size": str(len(hub.files[file])), "X-Linked-ETag": f'"{hash(hub.files[file])}"'}
                self.send(302, b"", Location=f"{hub.store}/{file}?signature=s3cr3t", **linked)
            elif path.startswith(resolve) and file in hub.files:
                self.send(200, hub.files[file])
            else:
                self.send(404, b'{"error": "Not found"}')

        def send(self, status: int, content: bytes, **headers: str) -> None:
            self.send_response(status)
            # The library asks for the commit and a tag of each file before it downloads it.
            told = {"Content-Length": str(len(content)), "X-Repo-Commit": COMMIT, "ETag": f'"{hash(content)}"'}
            for key, value in {**told, **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
