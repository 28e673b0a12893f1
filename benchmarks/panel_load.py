"""Row 13 and the panel under load: CPU from a key to its picture, and the longest turns of its loop.

`panel_load.py [SECONDS]` starts the panel on pseudo terminals of 120x40 and prints one JSON object. Under load it takes
keys for so long, then a storm of resizes. The load comes as in real work: 10,000 log lines a second, one of them of
10 MB now and then, through control's own parts on a thread beside the panel's, and gauges of eight hosts with eight
GPUs each at 1 Hz. Then once more with a log that comes from a real attempt behind OpenSSH's server (`real_link`);
there every line that was written has to arrive.

- A press counts from before the key is sent until what it brings is read from the terminal: the CPU time that the
  panel's thread took meanwhile, whatever it was for. The slowest key is that of the highest median of its presses; the
  spread of all presses stands beside it. First presses, which may open a screen for the first time, stand apart.
- A turn of the loop goes from one wait for news to the next; its CPU is that of the whole process, so what control
  takes of it counts and what other programs take does not.

It needs the panel's environment, Linux and /usr/sbin/sshd.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import select
import selectors
import signal
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import real_link

SECONDS = 90.0
LINES = 10_000
"""Log lines a second."""
PUSHES = 20
"""A second, as often as a gateway looks at the file."""
LONG_LINE = 10_000_000
"""Bytes of a line that comes every ten seconds."""
_LONG = b"x" * 250_000
SIZE = (120, 40)
KEY_SECONDS = 0.8
"""Between a picture and the next key: an operator looks at it."""
STORM = ((80, 24), (120, 40), (200, 60), (100, 30))
STORM_SECONDS = 5.0
SETTLE_SECONDS = 3.0
QUIET_SECONDS = 10.0
LIMIT_SECONDS = 60.0
NOTED_SECONDS = 0.005
"""CPU of a turn that is worth a note."""
ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|P.*?\x1b\\|[@-Z\\^_])", re.S)

KEYS = (
    ("k", "▸ ✓ vocab"),
    ("k", "▸ ✓ extract"),
    ("j", "▸ ✓ vocab"),
    ("j", "▸ ● train"),
    ("t", "8 x H200"),
    ("\x1b", "Pipeline"),
    ("m", "dockerd"),
    ("\x1b", "Pipeline"),
    ("e", "Events ·"),
    ("\x1b", "Pipeline"),
    ("?", "Help"),
    ("\x1b", "Pipeline"),
    ("\r", "max_position_too_short"),
    ("\x1b", "Pipeline"),
    ("\t", "& only"),
    ("k", "f follows"),
    ("f", "follow ▼"),
    ("\x1b[Z", "x stop"),
)
"""Each key, and what the terminal shows once it was obeyed; the last state is the first again."""


class Turns(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Notes the long turns of a loop: (begin, CPU of the thread, CPU of the process, wall), in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[float, float, float, float]] = []
        self._begun: tuple[float, float, float] | None = None

    def select(self, timeout: float | None = None) -> Any:
        if self._begun is not None:
            wall, thread, process = self._begun
            took = time.process_time() - process
            if took > NOTED_SECONDS:
                self.noted.append((wall, time.thread_time() - thread, took, time.monotonic() - wall))
        ready = super().select(timeout)
        self._begun = time.monotonic(), time.thread_time(), time.process_time()
        return ready


class Flood:
    """What a follower takes for a gateway: a log that grows by `LINES` lines a second."""

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        raise NotImplementedError

    async def subscribe(self, op: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        lines = [_line(number) for number in range(LINES)]
        pushes = [b"".join(lines[at::PUSHES]) for at in range(PUSHES)]
        ready = {data: base64.b64encode(data).decode() for data in (*pushes, _LONG, b"\n")}
        offset, begun = 0, time.monotonic()
        for number in itertools.count(1):
            await asyncio.sleep(max(0.0, begun + number / PUSHES - time.monotonic()))
            parts = [pushes[number % PUSHES]]
            if number % (10 * PUSHES) == 0:
                parts += [_LONG] * (LONG_LINE // len(_LONG)) + [b"\n"]
            for data in parts:
                # What it costs a host to make a frame is not counted; to read it is.
                yield json.loads(f'{{"generation": "g1", "offset": {offset}, "data": "{ready[data]}"}}')
                offset += len(data)


def _line(number: int) -> bytes:
    clock = f"14:{number // 60 % 60:02}:{number % 60:02}"
    return f"{clock} step={number} \x1b[32mloss={number / LINES:.3f}\x1b[0m acc_len=2.71 tok/s=41231\n".encode()


def loaded_source() -> Any:
    """The mock, whose log comes through control's own parts, and whose pictures from their thread, 10 a second."""
    from dataclasses import replace

    from eagle3_backend.control.commands import Hosts
    from eagle3_backend.control.following import LogTail
    from eagle3_backend.control.snapshot import Snapshot
    from eagle3_backend.runs.follower import LogFollower
    from eagle3_backend.runs.segments import Segments
    from eagle3_backend.runs.store import Key
    from eagle3_tui.mock import MockSource

    class Loaded(MockSource):
        newest = Snapshot()

        def start(self, changed: Callable[[], None]) -> None:
            super().start(changed)
            self.submit(Hosts(watch=True))
            threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True).start()

        def snapshot(self) -> Snapshot:
            return self.newest

        async def _work(self) -> None:
            with tempfile.TemporaryDirectory() as folder:
                key = Key("workspace", "run", 1)
                tail = LogTail("train", key, Segments(Path(folder)))
                follower = asyncio.create_task(LogFollower(tail.segments, key, tail.take).follow(Flood()))
                while not follower.done():
                    made = super().snapshot()
                    self.newest = replace(made, version=self.newest.version + 1, log=tail.view())
                    self._changed()
                    await asyncio.sleep(0.1)

    return Loaded("train")


def panel(result: Path, over_ssh: Path | None) -> None:
    """Run the panel in this terminal as `run_panel` does; what its loop did is written to ``result`` at the end.

    ``over_ssh`` is the folder of a real link.
    """
    import gc

    gc.disable()
    turns = Turns()
    loop = asyncio.SelectorEventLoop(turns)
    asyncio.set_event_loop(loop)
    import eagle3_tui.mockdiff  # noqa: F401 - which only the mock imports, and with the first question
    from eagle3_tui.app import Panel
    from eagle3_tui.garbage import begin_process

    source = real_link.source(over_ssh) if over_ssh is not None else loaded_source()
    app = Panel(source, Path("local.toml"))
    begin_process()
    app.run(loop=loop)
    source.close()
    result.write_text(json.dumps({"turns": turns.noted, "reached": getattr(source, "reached", 0)}))


class Terminal:
    """A program on a pseudo terminal."""

    def __init__(self, command: Sequence[str]) -> None:
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            known = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
            os.execve(command[0], command, known | {"TERM": "xterm-256color", "COLORTERM": "truecolor"})
        self.resize(*SIZE)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def thread_cpu(self) -> float:
        """Seconds that the panel's own thread has computed."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def cpu(self) -> float:
        """Seconds that the process has computed."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def read(self, seconds: float) -> None:
        """Raises EOFError when the program has ended."""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 1 << 16)
            except OSError:
                raise EOFError(self.seen[-2000:]) from None

    def rest(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0:
            self.read(left)
            self.seen = self.seen[-(1 << 16) :]

    def press(self, key: str, shown: str) -> float:
        """CPU seconds of the panel's thread until ``shown`` is read after ``key``."""
        self.seen = b""
        before, limit = self.thread_cpu(), time.monotonic() + LIMIT_SECONDS
        os.write(self.fd, key.encode())
        while shown.encode() not in ESCAPE.sub(b"", self.seen):
            self.read(0.1)
            if time.monotonic() > limit:
                raise TimeoutError(f"{shown!r} never came after {key!r}")
        return self.thread_cpu() - before

    def end(self) -> None:
        """Raises TimeoutError for a program that does not end at the key for it."""
        os.write(self.fd, b"q")
        try:
            self.rest(LIMIT_SECONDS)
            os.kill(self.pid, signal.SIGKILL)
            raise TimeoutError(f"q did not end it: {self.seen[-2000:]!r}")
        except EOFError:
            pass
        finally:
            os.waitpid(self.pid, 0)
            os.close(self.fd)


def under_load(seconds: float, *, over_ssh: bool = False) -> dict[str, Any]:
    with contextlib.ExitStack() as held:
        name = held.enter_context(tempfile.TemporaryDirectory())
        folder = Path(name)
        result = folder / "panel.json"
        if over_ssh:
            server = real_link.serve(folder)
            held.callback(server.kill)
        terminal = Terminal([sys.executable, __file__, "--panel", str(result), *([name] if over_ssh else [])])
        terminal.press("", "Pipeline")
        limit = time.monotonic() + LIMIT_SECONDS
        while over_ssh and not (folder / "begin").exists():
            terminal.rest(0.1)
            if time.monotonic() > limit:
                raise TimeoutError("the attempt was never followed")
        terminal.rest(SETTLE_SECONDS)
        begun = time.monotonic()
        first = [_pressed(terminal, *entry) for entry in KEYS]
        later: list[list[float]] = []
        while not later or time.monotonic() - begun < seconds:
            later.append([_pressed(terminal, *entry) for entry in KEYS])
        keys_ended = time.monotonic()
        for at in range(int(STORM_SECONDS * 20)):
            terminal.resize(*STORM[at % len(STORM)])
            terminal.rest(0.05)
        storm_ended = time.monotonic()
        resident = terminal.resident()
        log = {}
        if over_ssh:
            (folder / "enough").touch()
            terminal.rest(SETTLE_SECONDS)
            log = {"log": real_link.stored(folder)}
        terminal.end()
        told = json.loads(result.read_text())
        turns = told["turns"]
        if over_ssh:
            log["log"]["on_the_panel"] = told["reached"] == log["log"]["bytes"]
    return {
        "slowest_key_ms": round(1000 * max(statistics.median(presses) for presses in zip(*later, strict=True)), 1),
        "press_ms": _spread(list(itertools.chain(*later))),
        "first_press_ms": _spread(first),
        "turn_ms": _longest([turn for turn in turns if begun < turn[0] < keys_ended]),
        "turn_in_storm_ms": _longest([turn for turn in turns if keys_ended < turn[0] < storm_ended]),
        "resident_mib": round(resident),
        **log,
    }


def _pressed(terminal: Terminal, key: str, shown: str) -> float:
    cost = terminal.press(key, shown)
    terminal.rest(KEY_SECONDS)
    return cost


def _spread(costs: list[float]) -> dict[str, float]:
    ordered = sorted(1000 * cost for cost in costs)
    parts = {"p50": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "max": -1}
    return {"number": len(ordered), **{name: round(ordered[at], 1) for name, at in parts.items()}}


def _longest(turns: list[list[float]]) -> dict[str, float]:
    """Of each clock its longest turn; wall time is that of the whole machine."""
    names = ("thread_cpu", "process_cpu", "wall")
    return {name: round(1000 * max((turn[at] for turn in turns), default=0.0), 1) for at, name in enumerate(names, 1)}


def at_rest() -> dict[str, float]:
    """`eagle3-tui --mock`: CPU seconds to its first picture, and of one core in percent while nobody does anything."""
    start = "import sys; sys.argv = ['eagle3-tui', '--mock']; from eagle3_tui.cli import main; main()"
    paints, idle, resident = [], [], []
    for _ in range(3):
        terminal = Terminal([sys.executable, "-c", start])
        terminal.press("", "Pipeline")
        paints.append(terminal.cpu())
        terminal.rest(SETTLE_SECONDS)
        before, begun = terminal.cpu(), time.monotonic()
        terminal.rest(QUIET_SECONDS)
        idle.append(100 * (terminal.cpu() - before) / (time.monotonic() - begun))
        resident.append(terminal.resident())
        terminal.end()
    return {
        "paint_cpu_s": min(paints),
        "idle_cpu_percent": round(sorted(idle)[1], 2),
        "resident_mib": round(max(resident)),
    }


def main() -> None:
    if sys.argv[1:2] == ["--panel"]:
        panel(Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
        return
    seconds = float(sys.argv[1]) if sys.argv[1:] else SECONDS
    told = {"at_rest": at_rest(), "under_load": under_load(seconds), "over_ssh": under_load(seconds, over_ssh=True)}
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
