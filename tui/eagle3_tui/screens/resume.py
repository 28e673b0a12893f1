"""Before a stage is resumed: where it goes on, and what of its parameters is another than it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from eagle3_backend.control.commands import Specification
from eagle3_backend.control.snapshot import Snapshot, StageView
from eagle3_backend.pipeline.stages import STAGES
from eagle3_tui.bindings import bindings
from eagle3_tui.screens.dialogs import READ, Dialog
from eagle3_tui.text import clean, count
from eagle3_tui.widgets.facts import pairs_lines, wrapped

SHOWN = 8
"""Changed parameters that are named at most."""


class ResumeDialog(Dialog[bool]):
    """Asks the host what the last attempt was started with; nobody has to wait for the answer."""

    BINDINGS = bindings("confirm", *READ)
    severity = "warning"
    yes = "resume"

    def __init__(self, snapshot: Snapshot, view: StageView, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        self.heading = f"Resume {clean(view.name, 40)}"
        self._view = view
        self._now = parameters
        self._before: Mapping[str, Any] | None = None
        told = [event for event in snapshot.events if event.source == view.name and event.kind == "checkpoint"]
        self._checkpoint = clean(told[-1].text, 120) if told else ""

    def on_mount(self) -> None:
        def come(specification: Mapping[str, Any]) -> None:
            parameters = specification.get("parameters")
            self._before = parameters if isinstance(parameters, Mapping) else None
            if self.is_attached:
                self.renew()

        self.panel.inquire(Specification(self._view.run, self._view.attempt), come, lambda problem: None)

    def body(self) -> list[Text]:
        look, view = self.look, self._view
        stage = STAGES.get(view.name)
        words = f"Attempt {view.attempt + 1} of {clean(view.name, 40)}"
        if stage is not None and not stage.resumes:
            words += " starts over: this stage keeps no checkpoints."
        elif stage is not None and stage.makes != "checkpoint":
            words += " goes on from what it has kept."
        else:
            words += " goes on from its newest whole checkpoint; one that is torn is skipped, and its log says so."
        lines = wrapped(look, words, self.room)
        reached = (
            f"{count(view.done)} of {count(view.total)} {clean(view.unit, 20)}" if view.done and view.total else ""
        )
        facts = [("reached", reached), ("checkpoint", self._checkpoint), ("ended", clean(view.remark, 200))]
        lines += pairs_lines([fact for fact in facts if fact[1]], look, self.room)
        return [*lines, *self._changes(), Text("")]

    def _changes(self) -> list[Text]:
        if self._before is None:
            return []
        names = [name for name in self._now if name in self._before and not _same(self._now[name], self._before[name])]
        if not names:
            return wrapped(self.look, f"Its parameters are those of attempt {self._view.attempt}.", self.room, "dim")
        pairs = [(name, f"{_words(self._before[name])} {self.look.glyph('to')} {_words(self._now[name])}")
                 for name in names[:SHOWN]]  # fmt: skip
        more = [("", f"and {len(names) - SHOWN} more")] if len(names) > SHOWN else []
        head = wrapped(self.look, f"Other parameters than attempt {self._view.attempt}:", self.room, "warn")
        return [*head, *pairs_lines([*pairs, *more], self.look, self.room)]

    def action_yes(self) -> None:
        self.dismiss(True)


def _same(left: Any, right: Any) -> bool:
    """As JSON has them: tuples are lists there."""
    return json.dumps(left, default=str, sort_keys=True) == json.dumps(right, default=str, sort_keys=True)


def _words(value: Any) -> str:
    return clean(json.dumps(value, ensure_ascii=False, default=str), 60)
