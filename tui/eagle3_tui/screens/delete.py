"""Deleting an artifact: which one, what would be missed, and the stage's name typed before it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eagle3_backend.control.commands import Artifacts, DeleteArtifact
from eagle3_backend.findings import FindingError
from eagle3_tui.kept import missed, standing
from eagle3_tui.screens.choose import Choice, ChooseDialog
from eagle3_tui.screens.typed import TypedDialog
from eagle3_tui.text import clean, size
from eagle3_tui.widgets.logpane import words_of

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

LENGTH = 300
"""Letters of a path that are shown at most."""


def choose_artifact(panel: Panel, stage: str, gone: Callable[[], None]) -> None:
    """Ask the host what there is of ``stage``, then which of it, then for the stage's name; ``gone`` hears the end."""

    def come(answer: Mapping[str, Any]) -> None:
        found = {str(entry["path"]): entry for entry in answer["artifacts"] if entry["stage"] == stage}
        if not found:
            panel.notice(f"{clean(stage, 40)} has nothing to delete")
        elif len(found) == 1:
            _confirm(panel, next(iter(found.values())), gone)
        else:
            choices = [
                Choice(path, clean(entry["name"], 60), f"{size(entry['bytes'])}, {standing(entry)}")
                for path, entry in found.items()
            ]

            def chosen(path: str | None) -> None:
                if path is not None:
                    _confirm(panel, found[path], gone)

            panel.push_screen(ChooseDialog(f"Delete one of {stage}", choices), chosen)

    panel.inquire(Artifacts(), come, panel.refused_by_the_way)


def _confirm(panel: Panel, entry: Mapping[str, Any], gone: Callable[[], None]) -> None:
    facts = [
        ("path", clean(entry["path"], LENGTH)),
        ("size", size(entry["bytes"])),
        ("is", standing(entry)),
        ("then", missed(entry)),
    ]
    words = f"It goes from {clean(panel.picture.host.name, 60)} for good; the runs that made it and their logs stay."

    def end(sure: bool | None) -> None:
        if sure:
            panel.notice(f"deleting {size(entry['bytes'])}")
            panel.inquire(DeleteArtifact(str(entry["path"])), told, refused)

    def told(answer: Mapping[str, Any]) -> None:
        panel.notice(f"deleted {size(answer['bytes'])}" if answer["deleted"] else "it was gone already")
        gone()

    def refused(problem: BaseException) -> None:
        from eagle3_tui.screens.dialogs import MessageDialog

        findings = problem.findings if isinstance(problem, FindingError) else ()
        panel.push_screen(MessageDialog("Not deleted", findings, "" if findings else words_of(problem)))

    panel.push_screen(TypedDialog(f"Delete {entry['stage']}", words, str(entry["stage"]), facts), end)
