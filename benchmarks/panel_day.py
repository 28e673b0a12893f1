"""The panel on the real control after as many events as a day brings: `panel_day.py` prints its resident set.

A stage behind OpenSSH's server writes a day's journal and log within minutes: every second a metric line of
twelve series, progress and ten log lines, now and then a checkpoint and a note. The host's gauges come as often as
in a day, eight GPUs among them; somebody opens and leaves screens all the while, and the server is killed `LOSSES`
times. Nothing of control or panel is made up; only their clock is not that of a day.

It needs the panel's environment, Linux and /usr/sbin/sshd.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import panel_load
import real_link

LOSSES = 12
SMI = """#!/bin/sh
for gpu in 0 1 2 3 4 5 6 7; do echo "$gpu, GPU-$gpu, H200, 9$gpu, 7000$gpu, 143771, 6$gpu, 612.5"; done
"""
KEYS = (
    "t",
    "\x1b",
    "m",
    "\x1b",
    "e",
    "\x1b",
    "?",
    "\x1b",
    "\r",
    "\x1b",
    "z",
    "\x1b",
    "v",
    "\x1b",
    "c",
    "\x1b",
    "j",
    "k",
)
KEY_SECONDS = 1.0
LOOK_SECONDS = 10.0
LIMIT_SECONDS = 900.0


def panel(folder: Path) -> None:
    """The panel itself, whose gauges come `SPEED` times as often."""
    from eagle3_backend.control import chain
    from eagle3_backend.remote.session import HostSession
    from eagle3_tui.run_panel import run_panel

    real_spec, real_subscribe = chain.spec_of, HostSession.subscribe

    def emitting(*arguments: Any, **options: Any) -> dict[str, Any]:
        argv = [sys.executable, real_link.__file__, "--day", "{run_directory}", str(folder)]
        return {**real_spec(*arguments, **options), "argv": argv}

    async def subscribe(self: HostSession, op: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        async for push in real_subscribe(self, op, **fields):
            for _ in range(real_link.SPEED if op == "watch" else 1):
                yield push

    chain.spec_of = emitting
    HostSession.subscribe = subscribe  # type: ignore[method-assign]
    import gc

    gc.disable()
    run_panel(folder / real_link.PROFILE_NAME, autostart="setup")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "bin" / "nvidia-smi").write_text(SMI)
        (folder / "bin" / "nvidia-smi").chmod(0o755)
        server = real_link.serve(folder, f"SetEnv PATH={folder}/bin:{os.environ['PATH']}")
        try:
            print(json.dumps(_day(folder, server), indent=2))
        finally:
            server.kill()


def _day(folder: Path, server: Any) -> dict[str, Any]:
    homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
    os.environ.update(homes, HOME=str(folder))
    terminal = panel_load.Terminal([sys.executable, __file__, "--panel", str(folder)])
    terminal.press("", "Pipeline")
    begun, resident, lost, pressed = time.monotonic(), [], 0, 0
    while not (folder / "told").exists() and time.monotonic() - begun < LIMIT_SECONDS:
        if time.monotonic() - begun > len(resident) * LOOK_SECONDS:
            resident.append(round(terminal.resident(), 1))
            print(resident[-1], pressed, lost, file=sys.stderr)
        if lost < LOSSES and time.monotonic() - begun > (lost + 1) * real_link.DAY / real_link.SPEED / (LOSSES + 1):
            server.kill()
            server.start()
            lost += 1
        os.write(terminal.fd, KEYS[pressed % len(KEYS)].encode())
        pressed += 1
        terminal.rest(KEY_SECONDS)
    terminal.rest(10)
    resident.append(round(terminal.resident(), 1))
    terminal.end()
    return {"keys": pressed, "losses": lost, "resident_mib": resident}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--panel"]:
        panel(Path(sys.argv[2]))
    else:
        main()
