"""A laptop that drives a campaign through the command line, as a process of its own each time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from eagle3_backend.runs.store import Key, Store


@dataclass
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self):
        """The one object on standard output."""
        return json.loads(self.stdout)


@dataclass
class Laptop:
    """A laptop with folders of its own, and the campaign that it works on.

    ``settings`` go with every command, ``environment`` is added to this process's own.
    """

    home: Path
    workspace: Path
    profile: Path
    settings: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    begun: list[subprocess.Popen] = field(default_factory=list)

    def begin(self, *argv: str) -> subprocess.Popen:
        """Start a command; what it prints waits in pipes."""
        pipe = subprocess.PIPE
        return self._begin(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def open_panel(self) -> subprocess.Popen:
        """Start the panel on a terminal of its own, where somebody reads all it draws."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = self._begin((), stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        threading.Thread(target=_read_to_the_end, args=(master,), daemon=True).start()
        return process

    def _begin(self, argv: tuple[str, ...], **streams: Any) -> subprocess.Popen:
        flags = [flag for setting in self.settings for flag in ("--set", setting)]
        folders = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
        process = subprocess.Popen(
            [sys.executable, "-m", "eagle3_tui.cli", "--profile", str(self.profile), "--no-input", *flags, *argv],
            env={**os.environ, "TERM": "xterm-256color", **self.environment, **folders},
            **streams,
        )
        self.begun.append(process)
        return process

    def call(self, *argv: str, timeout: float = 120) -> Ended:
        """Run a command to its end."""
        process = self.begin(*argv)
        stdout, stderr = process.communicate(timeout=timeout)
        print(stderr, file=sys.stderr)
        return Ended(process.returncode, stdout, stderr)

    def give_up(self) -> None:
        """End the commands that are still there. Runs on the host go on."""
        for process in self.begun:
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def campaign(self) -> Path:
        return self.workspace / self.profile.stem

    def runs(self) -> dict[str, list[Path]]:
        """Attempt folders on the host by run, oldest first."""
        folder = self.workspace / ".eagle3" / "runs"
        attempts: dict[str, list[Path]] = {}
        for attempt in sorted(folder.glob("*/*"), key=lambda path: (path.parent.name, int(path.name))):
            attempts.setdefault(attempt.parent.name, []).append(attempt)
        return attempts

    def stages(self) -> dict[str, dict]:
        """What `status` says of each stage."""
        return {stage["name"]: stage for stage in self.call("status", "--json").json["stages"]}

    def stored_journal(self, run: str, attempt: int) -> list[str]:
        """The laptop's copy of a journal, line by line; empty before anything is stored."""
        identity = json.loads((self.workspace / ".eagle3" / "workspace.json").read_text())["id"]
        path = next((self.home / "state").rglob("*.sqlite"), None)
        if path is None:
            return []
        store = Store(path)
        try:
            return [line.text for line in store.lines(Key(identity, run, attempt))]
        finally:
            store.close()


def _read_to_the_end(terminal: int) -> None:
    with os.fdopen(terminal, "rb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.read(65536):
            pass


def wait_until(condition, seconds: float, what: str):
    """The first true value of ``condition``; fails the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.5)
    pytest.fail(f"{what} did not happen within {seconds:.0f} s")


def gateways_of(process: subprocess.Popen) -> list[psutil.Process]:
    """The gateway processes that a command has started on its embedded host; a shell around one is not it."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = []
    for child in children:
        try:
            words = child.cmdline()
        except psutil.Error:
            continue
        if "eagle3_backend.agent.gateway" in words:
            found.append(child)
    return found
