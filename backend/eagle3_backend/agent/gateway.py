"""The far end of a link: frames in on standard input, answers and pushes out on standard output.

``python -m eagle3_backend.agent.gateway --workspace W`` keeps no state, so it may die at any moment. It ends when its
input ends, or when three pings are missed.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Optional, Union

from eagle3_backend.agent import follow, frames
from eagle3_backend.agent.operations import Operations
from eagle3_backend.agent.workspace import Workspace
from eagle3_backend.findings import Finding, FindingError, Severity, error

TICK = 0.1
"""Seconds between looks at followed files: a push leaves well within 250 ms of the write."""
PING_INTERVAL = 5.0
WAITING_ANSWERS = 256
"""Answers that may wait for a slow reader; then no further request is read."""

Subscription = Union[follow.FileFollower, follow.Watch]


class Gateway:
    """Reads requests on one thread, writes frames on another, and works on slow requests in a small pool."""

    def __init__(self, workspace: Workspace, source: int, sink: int, ping_interval: float = PING_INTERVAL) -> None:
        self._operations = Operations(workspace)
        self._workspace = workspace
        self._source = source
        self._sink = sink
        self._silence = 3 * ping_interval
        self._heard = time.monotonic()
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=8)
        self._outgoing: queue.Queue = queue.Queue(maxsize=WAITING_ANSWERS)
        self._subscriptions: Dict[int, Subscription] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve until the input ends, the output breaks, or nothing was heard for three ping intervals."""
        for work in (self._read, self._write):
            threading.Thread(target=self._guarded, args=(work,), daemon=True).start()
        while not self._ended.wait(min(1.0, self._silence / 4)):
            if time.monotonic() - self._heard > self._silence:
                return

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except (BrokenPipeError, ConnectionError):
            pass
        finally:
            self._ended.set()

    def _read(self) -> None:
        splitter = frames.Splitter()
        while True:
            data = os.read(self._source, 1 << 16)
            if not data:
                return
            self._heard = time.monotonic()
            for line in splitter.feed(data):
                if line is None:
                    problem = error(
                        "frame_too_large", "A frame was longer than allowed and dropped.", expected=frames.MAX_FRAME
                    )
                    self._outgoing.put(frames.refusal(None, problem))
                elif line.strip():
                    self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            request = frames.decode(line)
        except FindingError as problem:
            self._outgoing.put(frames.refusal(None, problem.findings[0]))
            return
        if request["op"] in ("follow", "unfollow", "hello", "ping"):
            self._serve(request)
        else:
            self._pool.submit(self._serve, request)

    def _serve(self, request: Dict[str, Any]) -> None:
        identifier = request["id"]
        subscription: Optional[Subscription] = None
        try:
            if request["op"] == "follow":
                subscription, result = self._follow(request)
            elif request["op"] == "watch":
                subscription, result = self._watch(request)
            elif request["op"] == "unfollow":
                result = self._unfollow(request)
            else:
                result = self._operations.perform(request)
        except Exception as problem:
            self._outgoing.put(frames.refusal(identifier, finding_of(problem)))
            return
        # The answer first: it tells the client where the pushes start.
        self._outgoing.put(frames.answer(identifier, result))
        if subscription is not None:
            self._replace(request["sub"], subscription)
            self._outgoing.put(None)

    def _follow(self, request: Dict[str, Any]) -> Any:
        directory = self._workspace.existing(frames.field(request, "run", str), frames.field(request, "attempt", int))
        path = directory / follow.check_name(frames.field(request, "file", str), follow.FOLLOWED)
        generation = follow.generation_of(directory)
        offset = max(0, frames.field(request, "offset", int, 0))
        tail = frames.field(request, "tail", int, None)
        asked = frames.field(request, "generation", str, None)
        if asked is None and tail is not None:
            offset = max(0, follow.size_of(path) - max(0, tail))
        elif asked is not None and asked != generation:
            offset = 0
        subscription = follow.FileFollower(frames.field(request, "sub", int), path, generation, offset)
        return subscription, {"generation": generation, "offset": offset}

    def _watch(self, request: Dict[str, Any]) -> Any:
        interval = max(0.2, frames.field(request, "interval", float, 2.0))
        # A host that cannot be sampled says so in the answer, not by silence.
        self._operations.sample()
        return follow.Watch(frames.field(request, "sub", int), interval, self._operations.sample), {}

    def _unfollow(self, request: Dict[str, Any]) -> Dict[str, Any]:
        self._replace(frames.field(request, "sub", int), None)
        return {}

    def _replace(self, number: int, subscription: Optional[Subscription]) -> None:
        with self._lock:
            old = self._subscriptions.pop(number, None)
            if subscription is not None:
                self._subscriptions[number] = subscription
            if old is not None:
                old.close()

    def _write(self) -> None:
        while True:
            sent = self._write_pushes()
            try:
                # Idle without subscriptions costs nothing; with them it is a look at each file every tick.
                frame = self._outgoing.get(timeout=0 if sent else TICK if self._subscriptions else None)
                while True:
                    if frame is not None:
                        self._send(frame)
                    frame = self._outgoing.get_nowait()
            except queue.Empty:
                pass

    def _write_pushes(self) -> bool:
        """At most one frame of every subscription, so that none starves another."""
        sent = False
        for number in list(self._subscriptions):
            with self._lock:
                subscription = self._subscriptions.get(number)
                try:
                    frame = subscription.next_frame() if subscription is not None else None
                except OSError as problem:
                    del self._subscriptions[number]
                    frame = {"sub": number, "finding": finding_of(problem).to_json()}
            if frame is not None:
                self._send(frame)
                sent = True
        return sent

    def _send(self, frame: Dict[str, Any]) -> None:
        data = memoryview(frames.encode(frame))
        while data:
            data = data[os.write(self._sink, data) :]


def finding_of(problem: Exception) -> Finding:
    """The verdict behind an exception; one that nobody foresaw is shown with its place."""
    if isinstance(problem, FindingError):
        return problem.findings[0]
    if isinstance(problem, OSError):
        code = "disk_space_insufficient" if problem.errno == 28 else "host_io_error"
        return Finding(code, Severity.ERROR, f"{problem}.", path=str(problem.filename or ""))
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return error(
        "agent_fault",
        f"{type(problem).__name__}: {problem}",
        path=f"{Path(place.filename).name}:{place.lineno}",
        fix="Please report this with the log of the host.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="eagle3-gateway")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--ping-interval", type=float, default=PING_INTERVAL)
    options = parser.parse_args()
    os.umask(0o077)
    # The channel belongs to frames alone: whatever prints by accident goes to standard error.
    sink = os.dup(1)
    os.dup2(2, 1)
    Gateway(Workspace(options.workspace), 0, sink, options.ping_interval).run()
    # Threads may hang in a dead file system; nothing here needs a farewell.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
