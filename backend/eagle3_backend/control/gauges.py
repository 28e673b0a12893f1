"""The newest hour of a host's gauges, for charts: in memory only, in constant space."""

from __future__ import annotations

from eagle3_backend.control.snapshot import Machine
from eagle3_backend.runs.series import Point, downsample

KEPT_COLUMNS = 300
HOUR = 3600.0
MIB = 2**20


class GaugeHistory:
    """Grows by one sample a second; x is seconds since the campaign was opened."""

    def __init__(self) -> None:
        self._series: dict[str, list[Point]] = {}
        self._made: dict[str, tuple[Point, ...]] | None = None

    def add(self, at: float, machine: Machine) -> None:
        """A sample; a gauge that the host does not know stays a gap."""
        values = {
            "cpu percent": machine.cpu_percent,
            "memory GiB": machine.memory_used / (1024 * MIB) if machine.memory_used is not None else None,
        }
        for gpu in machine.gpus:
            used = gpu.memory_used / (1024 * MIB) if gpu.memory_used is not None else None
            values |= {f"gpu percent/{gpu.index}": gpu.utilisation, f"gpu memory GiB/{gpu.index}": used}
        for name, value in values.items():
            points = self._series.setdefault(name, [])
            points.append((at, float("nan") if value is None else value))
            if len(points) > 4 * KEPT_COLUMNS:
                self._series[name] = downsample([point for point in points if point[0] >= at - HOUR], KEPT_COLUMNS)
        self._made = None

    def series(self) -> dict[str, tuple[Point, ...]]:
        """The same object as long as no sample came."""
        if self._made is None:
            self._made = {name: tuple(points) for name, points in self._series.items()}
        return self._made
