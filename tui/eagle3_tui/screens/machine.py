"""The host's GPUs and processor with the last minutes of each, who holds locks, and whose processes use them."""

from __future__ import annotations

from typing import Any, cast

from rich.text import Text

from eagle3_backend.control.commands import Command, Processes
from eagle3_tui.drawing import Point, spark
from eagle3_tui.lockfacts import Holding, numbers
from eagle3_tui.screens.locked import LockedScreen
from eagle3_tui.text import clean, number, percent, size
from eagle3_tui.theme import Look
from eagle3_tui.widgets.facts import pairs_lines, wrapped
from eagle3_tui.widgets.gauges import GIB, gpu_row, host_title, machine_rows
from eagle3_tui.widgets.header import age_words
from eagle3_tui.widgets.table import Row, Table

HEAT_POINTS = 300
"""A heat row looks at this many newest samples."""
GAUGE = 60


class MachineScreen(LockedScreen):
    EVERY = 3.0

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._processes: list[dict[str, Any]] = []

    def question(self) -> Command:
        return Processes()

    def take(self, answer: object) -> None:
        self._processes = cast("dict[str, Any]", answer)["processes"]

    def table(self) -> Table:
        look, host = self.panel.look, self.panel.picture.host
        held = [_lock_row(one) for one in self.holdings()]
        rows = list(held)
        for entry in self._processes:
            gpus = ",".join(map(str, entry["gpus"]))
            run = f"{entry['run']} attempt {entry['attempt']}" if entry["run"] else "other"
            cells = (
                (str(entry["pid"]), "text"),
                (str(entry["user"]), "accent" if entry["run"] else "text"),
                (gpus or "-", "active" if gpus else "dim"),
                (percent(entry["cpu_percent"]), "text"),
                (size(entry["memory"]), "text"),
                (run, "good" if entry["run"] else "dim"),
                (str(entry["command"]), "dim"),
            )
            rows.append(Row(str(entry["pid"]), cells))
        width = self.app.size.width - 2
        title = look.joined([host_title(host, look, width).plain, age_words(host, self.panel.monotonic())])
        heads = ("pid", "user", "gpu", "cpu", "memory", "run", "command")
        empty = self.waiting("no process is told of")
        more = self.lock_notes(width, empty if held and not self._processes else "")
        return Table(title, heads, tuple(rows), empty, (*self._gauges(look, width), *more, Text("")))

    def _gauges(self, look: Look, width: int) -> list[Text]:
        """Gauges, each with what it was: as many rows as leave half of a small screen to the processes."""
        picture = self.panel.picture
        machine, gauges = picture.host.machine, picture.gauges
        left = min(GAUGE, width)
        rows = []
        for gpu in machine.gpus:
            history = gauges.get(f"gpu percent/{gpu.index}", ())
            rows.append(_with_heat(gpu_row(gpu, look, left), history, 100.0, look, width))
        cpu, memory, disk = machine_rows(machine, look, left)
        rows.append(_with_heat(cpu, gauges.get("cpu percent", ()), 100.0, look, width))
        rows.append(_with_heat(memory, gauges.get("memory GiB", ()), (machine.memory_total or 0) / GIB, look, width))
        rows.append(disk)
        most = max(3, self.app.size.height // 2 - 3)
        if len(rows) > most:
            rows = [*rows[: most - 3], *rows[-3:]]
        return rows

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        entry = next((entry for entry in self._processes if str(entry["pid"]) == key), None)
        if entry is None:
            return self.lock_detail(key, width)
        pairs = [
            ("owner", clean(entry["user"], 60)),
            ("run", f"{clean(entry['run'], 120)}, attempt {entry['attempt']}" if entry["run"] else "none of ours"),
            ("GPUs", ", ".join(map(str, entry["gpus"])) or "none that the driver tells"),
            ("cores", number(entry["cpu_percent"] / 100)),
        ]
        return [*wrapped(look, clean(entry["command"], 2000), width), *pairs_lines(pairs, look, width)]


def _lock_row(one: Holding) -> Row:
    cells = (
        ("lock", "accent"),
        (one.user, "text"),
        (numbers(one.gpus) or "-", "active" if one.gpus else "dim"),
        ("-", "dim"),
        ("-", "dim"),
        (one.run, "warn" if one.orphaned else "good"),
        (f"{one.what}, for {one.held}, {one.alive}", "warn" if one.orphaned else "text"),
    )
    return Row(one.key, cells)


def _with_heat(line: Text, points: tuple[Point, ...], most: float, look: Look, width: int) -> Text:
    """A gauge with its newest samples beside it, between 0 and ``most``, where there is room."""
    room = width - line.cell_len - 3
    if room < 10 or len(points) < 2 or not most:
        return line
    values = [value for _, value in points[-HEAT_POINTS:]]
    line.append("  ")
    return line.append_text(look.line((spark(values, room, look.ascii_only, (0.0, most)), "accent")))
