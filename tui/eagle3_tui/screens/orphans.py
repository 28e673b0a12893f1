"""Processes of ours that nobody supervises any more, the way to end them, and the locks that are held."""

from __future__ import annotations

from typing import Any, cast

from rich.text import Text

from eagle3_backend.control.commands import Command, EndOrphan, Orphans
from eagle3_tui.bindings import bindings
from eagle3_tui.lockfacts import Holding
from eagle3_tui.screens.locked import LockedScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import pairs_lines, wrapped
from eagle3_tui.widgets.table import Row, Table


class OrphansScreen(LockedScreen):
    BINDINGS = bindings("orphans")
    EVERY = 5.0
    context = "orphans"

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._orphans: list[dict[str, Any]] = []

    def question(self) -> Command:
        return Orphans()

    def take(self, answer: object) -> None:
        self._orphans = cast("dict[str, Any]", answer)["orphans"]

    def table(self) -> Table:
        look, held = self.panel.look, self.holdings()
        rows = [
            Row(
                f"{entry['run']}/{entry['attempt']}",
                (
                    (str(entry["run"]), "text"),
                    (str(entry["attempt"]), "dim"),
                    (str(len(entry["processes"])), "warn"),
                    (str(entry.get("remark") or ""), "dim"),
                ),
            )
            for entry in self._orphans
        ]
        facts = [_counted(len(rows), "attempt", "attempts"), _counted(len(held), "run holds locks", "runs hold locks")]
        quiet = self.waiting("none: all is supervised")
        notes = self.lock_notes(self.app.size.width - 2, quiet if held and not rows else "")
        rows += [_lock_row(one) for one in held]
        title = look.joined(["Orphans", *filter(None, facts)])
        return Table(title, ("run", "attempt", "processes", "remark"), tuple(rows), quiet, tuple(notes))

    def _entry(self, key: str) -> dict[str, Any] | None:
        return next((entry for entry in self._orphans if f"{entry['run']}/{entry['attempt']}" == key), None)

    def detail(self, key: str, width: int) -> list[Text]:
        look, entry = self.panel.look, self._entry(key)
        if entry is None:
            return self.lock_detail(key, width)
        lines = wrapped(look, f"X ends these {len(entry['processes'])} processes, by the steps of a stop.", width)
        pairs = [(str(one.get("pid")), clean(one.get("command"), 300)) for one in entry["processes"]]
        return [*lines, *pairs_lines(pairs, look, width)]

    def action_end_orphan(self) -> None:
        entry = self._entry(self.marked)
        if entry is None or self.panel.refuses_acts("end processes"):
            return
        from eagle3_tui.screens.typed import TypedDialog

        run, attempt = str(entry["run"]), int(entry["attempt"])

        def end(sure: bool | None) -> None:
            if sure:
                self.panel.ask(EndOrphan(run, attempt), f"ending the processes of {run}")
                self.refresh_data()

        words = f"{len(entry['processes'])} processes of attempt {attempt} are asked to end, then killed."
        self.app.push_screen(TypedDialog(f"End {run}", words, str(entry.get("stage") or run)), end)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number else ""


def _lock_row(one: Holding) -> Row:
    role = "warn" if one.orphaned else "text"
    words = f"{one.what}, for {one.held}, {one.user}"
    return Row(one.key, ((one.run, role), ("lock", "accent"), (one.alive, role), (words, role)))
