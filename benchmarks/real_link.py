"""A log of 10,000 lines a second on its real way: stage, gateway, SSH, the laptop's copies, control, panel.

`serve(folder)` starts OpenSSH's server on loopback, with keys of its own. `source(folder)` is what a panel draws from:
the mock's stages and hosts, but the log of a real attempt that control started behind that server. The attempt's
program is this file with ``--emit``: it numbers its lines, keeps a journal beside them, and ends once ``folder`` has a
file ``enough``, leaving what it wrote in ``emitted.json``.

No line is longer than usual here: one of 10 MB makes a log skip, as it is then too far behind.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

LINES = 10_000
"""Log lines a second."""
BURSTS = 20
"""A second."""
DAY = 86_400
"""Seconds that `emit_day` tells of."""
SPEED = 600
"""Of them in a second."""
SERIES = 12
DAY_LINES = 10
"""Log lines in each of them."""
MOCKED_SECONDS = 0.1
"""Between two pictures of the mock's part."""
FOLLOWED = "waiting for its reader"
LIMIT_SECONDS = 60.0
PROFILE_NAME = "panel-load.toml"
SSHD = Path(__file__).resolve().parents[1] / "tests" / "support" / "sshd.py"

PROFILE = """
[host]
address = "127.0.0.1"
port = {port}
user = "{user}"
identity = "{identity}"
workspace = "{folder}/workspace"
[environments.train]
python = "{python}"
[environments.vllm]
python = "{python}"
[target]
model = "demo:smollm2-135m"
[stages.prompts]
files = ["prompts.jsonl"]
"""


def serve(folder: Path, extra: str = "") -> Any:
    """A started server (`tests/support/sshd.py`); ``folder`` becomes a home that knows its key, and has its profile.

    ``extra`` goes into its configuration. Whoever starts it has to ``kill`` it.
    """
    spec = importlib.util.spec_from_file_location(SSHD.stem, SSHD)
    assert spec is not None and spec.loader is not None
    sshd = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sshd)
    server = sshd.Sshd(folder / "sshd", f"Subsystem sftp internal-sftp\n{extra}")
    (folder / ".ssh").mkdir(mode=0o700)
    for name in ("config", "known_hosts"):
        shutil.copy(server.folder / name, folder / ".ssh" / name)
    host = server.host()
    values = {"port": host.port, "user": host.user, "identity": host.identity}
    (folder / "prompts.jsonl").write_text('{"id": "1", "turns": ["What is a chain?"]}\n')
    (folder / PROFILE_NAME).write_text(PROFILE.format(folder=folder, python=sys.executable, **values))
    return server.start()


def emit(run_directory: Path, folder: Path) -> None:
    """The stage: waits until it is read, then writes lines at their pace, and a metric and progress every second."""
    from eagle3_backend.agent.journal import Journal

    print(FOLLOWED, flush=True)
    while not (folder / "begin").exists():
        time.sleep(0.01)
    begun, number = time.monotonic(), 0
    journal = Journal(run_directory / "journal.jsonl", "stage")
    while not (folder / "enough").exists():
        for _ in range(BURSTS):
            burst = range(number, number + LINES // BURSTS)
            os.write(1, "".join(map(line, burst)).encode())
            number = burst.stop
            time.sleep(max(0.0, begun + number / LINES - time.monotonic()))
        journal.metric(number // LINES, **{"train/loss": 1.0 / number})
        journal.progress(number // LINES, 10_000, "steps", 1.0)
    took = time.monotonic() - begun
    told = {"lines": number, "seconds": took, "bytes": os.fstat(1).st_size}
    (folder / "emitted.part").write_text(json.dumps(told))
    os.replace(folder / "emitted.part", folder / "emitted.json")


def emit_day(run_directory: Path, folder: Path) -> None:
    """The stage of `panel_day`: what a day brings within minutes; at the end ``folder`` has a file ``told``."""
    from eagle3_backend.agent.journal import Journal

    journal, begun = Journal(run_directory / "journal.jsonl", "stage"), time.monotonic()
    for second in range(DAY):
        journal.metric(second, **{f"train/loss_{number}": 1.0 / (1 + second + number) for number in range(SERIES)})
        journal.progress(second, DAY, "steps", 1.0)
        number = DAY_LINES * second
        os.write(1, "".join(map(line, range(number, number + DAY_LINES))).encode())
        if second % 600 == 0:
            journal.checkpoint(second, f"step-{second}")
            journal.note(f"hour {second / 3600:.1f}")
        time.sleep(max(0.0, begun + second / SPEED - time.monotonic()))
    (folder / "told").touch()


def line(number: int) -> str:
    """Of the log."""
    clock = f"14:{number // 60 % 60:02}:{number % 60:02}"
    return f"{clock} step={number} \x1b[32mloss={number % LINES / LINES:.3f}\x1b[0m acc_len=2.71 tok/s=41231\n"


def source(folder: Path) -> Any:
    """The mock, whose log is that of a real attempt; its `reached` tells how far the panel's log was at the end."""
    from eagle3_backend.control import Control, chain
    from eagle3_backend.control.commands import Command, FindLogTime, Hosts, Open, ReadLog, Start
    from eagle3_backend.control.snapshot import LogView, Snapshot
    from eagle3_tui.mock import MockSource

    real_spec = chain.spec_of

    def emitting(*arguments: Any, **options: Any) -> dict[str, Any]:
        argv = [sys.executable, __file__, "--emit", "{run_directory}", str(folder)]
        return {**real_spec(*arguments, **options), "argv": argv}

    chain.spec_of = emitting
    os.environ["HOME"] = str(folder)  # where ~/.ssh is looked for

    class OverSsh(MockSource):
        reached = 0
        _control: Control | None = None
        _seen = _shown = LogView()
        _mocked = Snapshot()

        def start(self, changed: Callable[[], None]) -> None:
            super().start(changed)
            self.submit(Hosts(watch=True))
            threading.Thread(target=self._begin, daemon=True).start()

        def _begin(self) -> None:
            self._control = control = Control(folder / "config", folder / "state", folder / "cache")
            control.start()
            control.submit(Open(folder / PROFILE_NAME)).result()
            control.submit(Start("setup")).result()
            while not any(FOLLOWED in line.text for line in control.snapshot().log.lines):
                time.sleep(0.01)
            (folder / "begin").touch()
            control.on_picture(self._changed)
            while True:  # on a thread, where control makes its pictures
                self._mocked = super().snapshot()
                time.sleep(MOCKED_SECONDS)

        def snapshot(self) -> Snapshot:
            made = self._mocked
            if not made.version or self._control is None:
                return super().snapshot()
            log = self._control.snapshot().log
            if log is not self._seen:
                self._seen, self._shown = log, replace(log, stage="train")
            # The mock's version stands still between its own changes.
            return replace(made, version=made.version * 10**12 + log.bytes, log=self._shown)

        def submit(self, command: Command) -> Future[Any]:
            if isinstance(command, ReadLog | FindLogTime) and self._control is not None:
                return self._control.submit(replace(command, stage="setup"))
            return super().submit(command)

        def close(self) -> None:
            if self._control is not None:
                self.reached = self._control.snapshot().log.bytes
                self._control.close()
            super().close()

    return OverSsh("train")


def stored(folder: Path) -> dict[str, Any]:
    """The laptop's copy once it has all that was emitted: its lines in their order, and the journal's metrics.

    Raises TimeoutError.
    """
    from eagle3_backend.runs.store import Key, Store

    limit = time.monotonic() + LIMIT_SECONDS
    while not (folder / "emitted.json").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    emitted = json.loads((folder / "emitted.json").read_text())
    ((copy, wanted),) = [(path.parent, emitted["bytes"]) for path in (folder / "state" / "logs").rglob("*-0")]
    while (sizes := [path.stat().st_size for path in copy.iterdir()]) != [wanted]:
        if time.monotonic() > limit:
            raise TimeoutError(f"of {wanted} bytes {sizes} arrived")
        time.sleep(0.05)
    (segment,) = copy.iterdir()
    steps = [int(line.split(b"step=")[1].split()[0]) for line in segment.read_bytes().splitlines() if b"step=" in line]
    workspace, run, attempt = copy.parts[-3:]
    store = Store(folder / "state" / "runs.sqlite")
    metrics = len(store.series(Key(workspace, run, int(attempt)))["train/loss"])
    store.close()
    return {
        "emitted": emitted["lines"],
        "a_second": round(emitted["lines"] / emitted["seconds"]),
        "arrived": len(steps),
        "in_order": steps == list(range(emitted["lines"])),
        "journal_metrics": [emitted["lines"] // LINES, metrics],
        "bytes": wanted,
    }


if __name__ == "__main__":
    {"--emit": emit, "--day": emit_day}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
