"""From the key to the picture of a comparison: one side is chosen, then the other, both are read, and it is shown."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_backend.control.commands import Attempts, Inspect, Specification
from eagle3_backend.drafter.configfile import ConfigFile
from eagle3_backend.drafter.inspection import Inspection
from eagle3_backend.findings import FindingError
from eagle3_tui import candidates, comparing
from eagle3_tui.candidates import Candidate
from eagle3_tui.comparing import DRAFTER, PROFILE, Document
from eagle3_tui.text import clean

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

FIRST = "A: a drafter (directory or config.json), a profile, or a run. Type to narrow the list, or type a path."
SECOND = "B: what to put beside {}."


class Choosing:
    """One comparison in the making. ``stage`` is the one whose runs come first."""

    def __init__(self, panel: Panel, stage: str = "") -> None:
        self._panel = panel
        self._stage = stage

    def begin(self) -> None:
        self._pick("Compare", FIRST, "", self._chosen)

    def _chosen(self, first: Candidate | None) -> None:
        if first is None:
            return
        words = SECOND.format(clean(first.title, 200))
        self._pick("Compare with", words, first.kind, lambda second: self._compare(first, second), first)

    def _pick(self, heading: str, hint: str, kind: str, then: Any, other: Candidate | None = None) -> None:
        from eagle3_tui.screens.pick import PickDialog

        stage = other.stage if other is not None else self._stage
        dialog = PickDialog(heading, hint, candidates.artifacts(self._panel.picture), kind, stage)
        dialog.hide(other)
        self._panel.push_screen(dialog, then)
        self._panel.inquire(Attempts(), lambda answer: dialog.offer(candidates.runs(answer)), lambda problem: None)
        dialog.run_worker(self._offer_profiles(dialog), group="profiles")

    async def _offer_profiles(self, dialog: Any) -> None:
        dialog.offer(await asyncio.to_thread(candidates.profiles))

    def _compare(self, first: Candidate, second: Candidate | None) -> None:
        if second is not None:
            self._panel.run_worker(self._show(first, second), group="diff", exclusive=True)

    async def _show(self, first: Candidate, second: Candidate) -> None:
        from eagle3_tui.screens.dialogs import MessageDialog
        from eagle3_tui.screens.diff import DiffScreen

        self._panel.notice("reading both sides")
        try:
            left, right = await self._document(first), await self._document(second)
            target = await self._target() if "host" in (first.where, second.where) and first.kind == DRAFTER else None
            comparison = await asyncio.to_thread(comparing.compare, left, right, target)
        except FindingError as problem:
            self._panel.push_screen(MessageDialog("Cannot compare", problem.findings))
            return
        except Exception as problem:
            words = f"{type(problem).__name__}: {clean(problem, 1000)}"
            self._panel.push_screen(MessageDialog("Engine fault", words=words))
            return
        finally:
            self._panel.notice("")
        screen = DiffScreen(comparison)
        if isinstance(self._panel.screen, DiffScreen):
            self._panel.switch_screen(screen)
        else:
            self._panel.push_screen(screen)

    async def _document(self, chosen: Candidate) -> Document:
        """Read one side without holding up the panel. Raises FindingError."""
        if chosen.kind == PROFILE:
            return await asyncio.to_thread(comparing.profile_document, Path(os.path.expanduser(chosen.path)))
        if chosen.where == "here":
            return await asyncio.to_thread(comparing.drafter_document, chosen.path)
        if chosen.kind == DRAFTER:
            return _of_host(await self._inspect(chosen.path))
        answer = await self._ask(Specification(chosen.run, chosen.attempt))
        return comparing.run_document(chosen.title, answer)

    async def _target(self) -> Mapping[str, Any] | None:
        """The config of the campaign's target, when that stage is done."""
        view = self._panel.picture.stage("target")
        if view is None or not view.fresh:
            return None
        answer = await self._inspect(view.output)
        config: Mapping[str, Any] | None = answer["config"]
        return config

    async def _inspect(self, path: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self._ask(Inspect(path))
        return answer

    async def _ask(self, command: Any) -> Any:
        return await asyncio.wrap_future(self._panel.source.submit(command))


def _of_host(answer: Mapping[str, Any]) -> Document:
    """A drafter as the host read it. Raises FindingError where it has no config."""
    found = Inspection.from_json(answer)
    if found.config is None:
        raise FindingError(*found.findings)
    text = json.dumps(found.config, indent=2, ensure_ascii=False)
    return comparing.of_config(ConfigFile(found.path, found.config, text), found.inventory)
