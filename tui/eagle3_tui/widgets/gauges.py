"""What the host is doing: one row a GPU; processor, memory and disk where there is none. Unknown is a dash, never 0."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from eagle3_backend.control.snapshot import Gpu, HostView, Machine
from eagle3_tui.drawing import Point, bar
from eagle3_tui.text import clean, percent, shorten, size
from eagle3_tui.theme import Look
from eagle3_tui.widgets.charts import spark_line
from eagle3_tui.widgets.picture import Picture

GIB = 2**30
HOT = 85.0
"""Celsius from which a GPU's temperature is told in the warning colour."""
FULL = 0.95
"""Share of a disk or of memory from which its gauge is drawn in the warning colour."""


def _share(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


def _memory(used: int | None, total: int | None) -> str:
    """ "71/141G": memory is counted in binary units, whatever disks are."""
    first = "-" if used is None else f"{used / GIB:.0f}" if used >= 10 * GIB or not used else f"{used / GIB:.1f}"
    return f"{first}/{'-' if total is None else f'{total / GIB:.0f}'}G"


def gpu_row(gpu: Gpu, look: Look, width: int) -> Text:
    """Index, utilisation, bar, memory, temperature and power, as far as they fit ``width``."""
    hot = gpu.temperature is not None and gpu.temperature >= HOT
    warmth = f"{gpu.temperature:.0f}C" if gpu.temperature is not None else "-"
    power = f"{gpu.power:.0f}W" if gpu.power is not None else "-"
    left = f"{gpu.index:>2} {percent(gpu.utilisation):>4} "
    right = f" {_memory(gpu.memory_used, gpu.memory_total):>8} {warmth:>4}"
    if width >= 44:
        right += f" {power:>5}"
    room = min(24, max(0, width - len(left) - len(right)))
    share = gpu.utilisation / 100 if gpu.utilisation is not None else None
    drawn = bar(share, room, look.glyph("full"), look.glyph("empty"))
    return look.line((left, "text"), (drawn, "active"), (right, "warn" if hot else "dim"))


def _named(name: str, share: float | None, words: str, look: Look, width: int, warn: bool = False) -> Text:
    value = percent(share * 100 if share is not None else None)
    left = f" {name:<7}{value:>4} "
    room = min(24, max(0, width - len(left) - cell_len(words) - 2))
    drawn = bar(share, room, look.glyph("full"), look.glyph("empty"))
    return look.line((left, "text"), (drawn, "warn" if warn else "active"), (f"  {words}", "dim"))


def machine_rows(machine: Machine, look: Look, width: int) -> list[Text]:
    """Processor, memory and disk, one row each."""
    cpu = machine.cpu_percent / 100 if machine.cpu_percent is not None else None
    cores = f"{machine.cpu_count} cores" if machine.cpu_count else ""
    load = f"load {machine.load:.1f}" if machine.load is not None else ""
    memory = _share(machine.memory_used, machine.memory_total)
    taken = machine.disk_total - machine.disk_free if machine.disk_total and machine.disk_free is not None else None
    disk = _share(taken, machine.disk_total)
    return [
        _named("cpu", cpu, ", ".join(part for part in (cores, load) if part), look, width),
        _named(
            "memory",
            memory,
            _memory(machine.memory_used, machine.memory_total),
            look,
            width,
            memory is not None and memory > FULL,
        ),
        _named("disk", disk, f"{size(machine.disk_free)} free", look, width, disk is not None and disk > FULL),
    ]


def machine_line(machine: Machine, look: Look, width: int) -> Text:
    """Processor, memory and disk on one line, without bars."""
    parts = [
        f"cpu {percent(machine.cpu_percent)}",
        f"load {machine.load:.1f}" if machine.load is not None else "",
        f"memory {_memory(machine.memory_used, machine.memory_total)}",
        f"disk {size(machine.disk_free)} free",
    ]
    return look.line((" " + shorten("  ".join(part for part in parts if part), width - 1, look.glyph("more")), "dim"))


def gpu_words(machine: Machine) -> str:
    """All GPUs of a host in a few cells, what changes first: "96%  426/1128G  8 x H200"."""
    gpus = machine.gpus
    if not gpus:
        return "none" if machine != Machine() else "-"
    models = {clean(gpu.name, 40).removeprefix("NVIDIA ") for gpu in gpus}
    shares = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    total = [gpu.memory_total for gpu in gpus if gpu.memory_total is not None]
    busy = percent(sum(shares) / len(shares) if shares else None)
    memory = _memory(sum(used) if used else None, sum(total) if total else None)
    return f"{busy:>4}  {memory}  {len(gpus)} x {', '.join(sorted(models))}"


def gauge_lines(machine: Machine, look: Look, width: int, height: int) -> list[Text]:
    """At most ``height`` rows: GPUs in one or two columns, what is left of them counted; then the machine itself."""
    if machine == Machine():
        return [look.line((" no telemetry yet", "dim"))]
    gpus = machine.gpus
    if not gpus:
        if height >= 3:
            return machine_rows(machine, look, width)
        column = (width - 2) // 2
        cpu, memory, disk = machine_rows(machine, look, column)
        cpu.pad_right(max(0, column + 1 - cpu.cell_len))
        return [cpu.append_text(memory), disk][:height]
    columns = 2 if len(gpus) > height and width >= 66 else 1
    column = width // columns - (columns - 1)
    rows_needed = -(-len(gpus) // columns)
    shown = list(gpus)
    left_out = 0
    if rows_needed > height:
        left_out = len(gpus) - (height * columns - 1)
        shown = list(gpus[: height * columns - 1])
        rows_needed = height
    cells = [gpu_row(gpu, look, column) for gpu in shown]
    if left_out:
        busy = [gpu.utilisation for gpu in gpus[-left_out:] if gpu.utilisation is not None]
        mean = f", {sum(busy) / len(busy):.0f}% on average" if busy else ""
        cells.append(look.line((f" +{left_out} more{mean}", "dim")))
    lines = []
    for row in range(rows_needed):
        line = Text(end="")
        for cell in cells[row::rows_needed]:
            cell.pad_right(max(0, column + 1 - cell.cell_len))
            line.append_text(cell)
        lines.append(line)
    if height - len(lines) >= 1:
        lines.append(machine_line(machine, look, width))
    return lines


def host_title(host: HostView, look: Look, width: int) -> Text:
    """ "GPUs · h200-a · 8 x H200", or the machine's name."""
    gpus = host.machine.gpus
    name = clean(host.name, 40)
    models = {clean(gpu.name, 40).removeprefix("NVIDIA ") for gpu in gpus}
    what = look.joined(["GPUs", name, f"{len(gpus)} x {', '.join(sorted(models))}"] if gpus else ["Machine", name])
    return Text(shorten(look.remote(what), width, look.glyph("more")))


class Gauges(Picture):
    def title(self, width: int) -> Text:
        return host_title(self.part, self.look, width) if self.part else Text("Machine")

    def lines(self, width: int, height: int) -> list[Text]:
        host: HostView | None = self.part
        return gauge_lines(host.machine if host else Machine(), self.look, width, height)


@dataclass(frozen=True)
class Numbers:
    """What `Now` draws."""

    machine: Machine = field(default_factory=Machine)
    series: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    stage: str = ""


class Now(Picture):
    """Where there is no room for tiles: sparklines on one line, gauges below."""

    def title(self, width: int) -> Text:
        return Text("Now")

    def lines(self, width: int, height: int) -> list[Text]:
        numbers: Numbers = self.part or Numbers()
        first = self.look.line(" ").append_text(spark_line(numbers.series, numbers.stage, self.look, width - 2))
        return [first, *gauge_lines(numbers.machine, self.look, width, height - 1)]
