"""A terminal that stops reading (ctrl+s, a suspended multiplexer) stands still, and nothing else does."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from eagle3_backend.control.commands import Start, Stop
from eagle3_backend.runs.follower import JOURNAL, LOG
from eagle3_backend.runs.segments import Segments
from eagle3_backend.runs.store import Key, Store
from eagle3_backend.states import RunState

START = "from eagle3_tui.cli import main; main()"
STEPS = 400
"""Lines of log and journal that have to arrive while the terminal is not read; twenty times what it could show."""


class Panel:
    """A panel on a real campaign and on a terminal that is read only when the test says so."""

    def __init__(self, campaign: Any) -> None:
        self.output = b""
        self.folders = campaign.root / "laptop"
        known = {f"XDG_{kind}_HOME": str(self.folders / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
        known |= {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            argv = [sys.executable, "-c", START, "--profile", str(campaign.profile)]
            os.execve(sys.executable, argv, {**os.environ, **known})
        self.resize(120)

    @property
    def state(self) -> Path:
        return self.folders / "state" / "eagle3-tui"

    def computed(self) -> int:
        """Nanoseconds that the panel's own thread has computed."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0])

    def read(self) -> bool:
        if select.select([self.terminal], [], [], 0.1)[0]:
            self.output += os.read(self.terminal, 1 << 16)
        return True

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def block(self) -> None:
        """Let it write until the terminal takes no more and its own thread stands still for a second."""
        limit, computed, since = time.monotonic() + 60.0, -1, 0.0
        while time.monotonic() < limit:
            now = time.monotonic()
            if self.computed() != computed:
                computed, since = self.computed(), now
                self.resize(119 + int(now * 5) % 2)
            elif now - since > 1.0:
                return
            time.sleep(0.05)
        raise AssertionError("it wrote for a minute")

    def leave(self) -> int:
        os.write(self.terminal, b"q")
        while True:
            try:
                self.output += os.read(self.terminal, 1 << 16)
            except OSError:
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def until(done: Callable[[], Any], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.05)


def steps_in(output: bytes) -> int:
    """The newest step that the fake stage tells of."""
    return max(map(int, re.findall(rb"setup step (\d+)", output)), default=-1)


@pytest.fixture
def panel(campaign: Any, wait_until: Callable[..., Any]) -> Iterator[Panel]:
    """On a run that writes as long as the test takes."""
    campaign.behave(setup={"steps": 1_000_000, "pause": 0.004})
    control = campaign.control()
    campaign.ask(control, Start("setup"))
    shown = Panel(campaign)
    yield shown
    if psutil.pid_exists(shown.pid):
        os.kill(shown.pid, signal.SIGKILL)
    os.close(shown.terminal)
    campaign.ask(control, Stop("setup"))
    wait_until(control, lambda snapshot: snapshot.stage("setup").state is RunState.STOPPED)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at what a thread computes through /proc")
def test_a_terminal_that_is_not_read_loses_no_link_and_no_line(campaign, panel, gateways) -> None:
    until(lambda: panel.read() and steps_in(panel.output) > 3)
    (directory,) = (campaign.workspace / ".eagle3" / "runs").glob("*/1")
    serving, store = gateways(panel.pid), Store(panel.state / "runs.sqlite")
    identity = json.loads((campaign.workspace / ".eagle3" / "workspace.json").read_text())["id"]
    key = Key(identity, directory.parent.name, 1)
    log = Segments(panel.state / "logs" / key.workspace / key.run / "1")

    panel.block()
    standing, lines, journal = panel.computed(), log.end(), store.position(key)[1]
    until(lambda: log.end() - lines > STEPS * 10 and store.position(key)[1] - journal > STEPS * 100)
    assert panel.computed() == standing

    newest = steps_in(log.tail(2000)[1])
    until(lambda: panel.read() and steps_in(panel.output) >= newest)
    assert gateways(panel.pid) == serving and len(serving) == 1
    assert panel.leave() == 0
    assert [event for event in store.events(100) if event["kind"] == "link" and event["severity"] != "info"] == []
    assert log.parts() == [(0, log.end())] and log.read(0, log.end()) == (directory / LOG).read_bytes()[: log.end()]
    stored = (directory / JOURNAL).read_bytes()[: store.position(key)[1]]
    assert [line.text.encode() for line in store.lines(key)] == stored.splitlines()
    store.close()
