"""Seven more hosts for the mock, each with eight GPUs: a fleet of eight, seen once the hosts are watched."""

from __future__ import annotations

from dataclasses import replace

from eagle3_backend.control.snapshot import HostView
from eagle3_backend.states import LinkState
from eagle3_tui.mockcurves import machine_at

NAMES = tuple(f"h200-{letter}" for letter in "bcdefgh")
AGENT = "protocol 1, Python 3.11.9, psutil 7.2.2"


def others_at(elapsed: float, now: float) -> tuple[HostView, ...]:
    """What is known of them ``elapsed`` seconds after the start, at the monotonic time ``now``."""
    views = []
    for number, name in enumerate(NAMES, 1):
        machine = machine_at(elapsed + 5 * number, False)
        if number == 3:
            gpus = tuple(replace(gpu, utilisation=0.0, memory_used=0, power=75.0) for gpu in machine.gpus)
            machine = replace(machine, gpus=gpus, cpu_percent=1.0)
        view = HostView(
            name, LinkState.LIVE, now - elapsed, now, 0.03 + number / 500, 0.1, machine=machine, agent=AGENT
        )
        if number == 6:
            view = replace(view, link=LinkState.RECONNECTING, since=now - 41.0, data_at=now - 41.0, attempt=5)
        views.append(view)
    return tuple(views)
