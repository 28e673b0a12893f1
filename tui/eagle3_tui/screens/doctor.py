"""Checks of link, host and workspace, each with what to do about it; the same as the command `doctor`."""

from __future__ import annotations

from typing import Any, cast

from rich.text import Text

from eagle3_backend.control.commands import Command, Doctor
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import wrapped
from eagle3_tui.widgets.table import Row, Table

LEVELS = {"ok": "ok", "warn": "warning", "fail": "error"}


class DoctorScreen(TableScreen):
    """What is wrong comes first."""

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._checks: list[dict[str, Any]] = []

    def question(self) -> Command:
        return Doctor()

    def take(self, answer: object) -> None:
        checks = cast("dict[str, Any]", answer)["checks"]
        self._checks = sorted(checks, key=lambda check: ("fail", "warn", "ok").index(check["level"]))

    def table(self) -> Table:
        look = self.panel.look
        rows = []
        for check in self._checks:
            glyph, role = look.severity(LEVELS.get(check["level"], "info"))
            cells = ((glyph, role), (check["area"], "dim"), (check["name"], "text"), (check["message"], role))
            rows.append(Row(_key(check), cells))
        bad = sum(check["level"] != "ok" for check in self._checks)
        facts = ["Doctor", f"{len(rows)} checks" if rows else "", f"{bad} to look at" if bad else "all well"]
        return Table(
            look.joined(facts if rows else ["Doctor"]),
            (" ", "area", "check", "result"),
            tuple(rows),
            self.waiting("no checks yet"),
        )

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        check = next((check for check in self._checks if _key(check) == key), None)
        if check is None:
            return []
        lines = wrapped(look, clean(check["message"], 2000), width)
        if check.get("fix"):
            lines += wrapped(look, f"{look.glyph('to')} {clean(check['fix'], 1000)}", width, "accent")
        return lines


def _key(check: dict[str, Any]) -> str:
    return f"{check['area']}/{check['name']}/{check['message']}"
