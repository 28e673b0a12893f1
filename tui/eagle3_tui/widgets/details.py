"""The selected stage beside the charts, where the terminal is wide."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from eagle3_backend.control.snapshot import StageView
from eagle3_tui.text import clean, size
from eagle3_tui.widgets.facts import stage_lines
from eagle3_tui.widgets.picture import Picture


class Details(Picture):
    def title(self, width: int) -> Text:
        view: StageView | None = self.part
        return Text(clean(view.name, 40) if view is not None else "Stage")

    def lines(self, width: int, height: int) -> list[Text]:
        view: StageView | None = self.part
        if view is None:
            return [self.look.line((" no stage selected", "dim"))]
        return [
            Text(" ", end="").append_text(line)
            for line in stage_lines(view, self.look, width - 2, self.panel.monotonic())
        ]


@dataclass(frozen=True)
class Ahead:
    """What a first run takes: seconds and bytes as the host forecasts them, and its free bytes; None: not known yet."""

    seconds: float | None = None
    bytes: int | None = None
    free: int | None = None


class Hint(Picture):
    """What a new operator reads before anything has run."""

    def title(self, width: int) -> Text:
        return Text("First run")

    def lines(self, width: int, height: int) -> list[Text]:
        ahead: Ahead = self.part or Ahead()
        minutes = f"{max(1, round(ahead.seconds / 60))}" if ahead.seconds else "15 to 20"
        disk = size(ahead.bytes) if ahead.bytes else "8 GB"
        short = ahead.free is not None and ahead.bytes is not None and ahead.free < ahead.bytes
        free = f" ({size(ahead.free)} free)" if ahead.free is not None else ""
        free = f", and only {size(ahead.free)} are free" if short else free
        # Short enough for the smallest terminal that shows panels.
        shown = (
            (("s", "accent bold"), "  trains a drafter for a 135M model and measures it here"),
            (f"   takes about {minutes} minutes, and goes on without the panel",),
            ((f"   needs {disk} of disk{free}", "warn" if short else "text"),),
        )
        rows = [self.look.line(" ", *pieces) for pieces in shown]
        if height >= 8:
            rows = [Text(""), *[row for pair in rows for row in (pair, Text(""))]]
            rows.append(self.look.line(" ", ("enter", "accent bold"), "  shows the selected stage and its parameters"))
            rows.append(self.look.line(" ", ("?", "accent bold"), "  lists all keys"))
        return rows
