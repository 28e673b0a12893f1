"""What the screens share that tell held locks beside their rows."""

from __future__ import annotations

from typing import Any, cast

from rich.text import Text

from eagle3_backend.control.commands import Locks
from eagle3_tui import lockfacts
from eagle3_tui.lockfacts import Holding
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.text import clean, shorten
from eagle3_tui.widgets.facts import pairs_lines, wrapped
from eagle3_tui.widgets.logpane import words_of


class LockedScreen(TableScreen):
    """Asks for locks whenever it asks for its rows; either answer is shown without the other."""

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._locks: dict[str, Any] = {}
        self._asking_locks = False
        self._lock_trouble = ""

    def refresh_data(self) -> None:
        super().refresh_data()
        if self._asking_locks:
            return
        self._asking_locks = True

        def come(answer: object) -> None:
            self._locks = cast("dict[str, Any]", answer)
            problem = self._locks.get("problem")
            told("" if problem is None else str(problem.get("message")))

        def refused(problem: BaseException) -> None:
            told(words_of(problem))

        def told(trouble: str) -> None:
            self._asking_locks, self._lock_trouble = False, trouble
            self.show_again()

        self.panel.inquire(Locks(), come, refused)

    def _indices(self) -> dict[str, int]:
        return {gpu.uuid: gpu.index for gpu in self.panel.picture.host.machine.gpus if gpu.uuid}

    def holdings(self) -> list[Holding]:
        return lockfacts.holdings(self._locks.get("locks") or (), self._indices())

    def lock_notes(self, width: int, quiet: str = "") -> list[Text]:
        """Above the rows: what the screen's own question brought, ``quiet``, where locks are its only rows; then what
        is not known of locks, unless the own trouble says it."""
        told = [quiet] if quiet else []
        if self._lock_trouble and self._lock_trouble != self.trouble:
            told.append(f"locks: {clean(self._lock_trouble, 400)}")
        look = self.panel.look
        return [look.line((shorten(look.remote(f" {words}"), width, look.glyph("more")), "dim")) for words in told]

    def lock_detail(self, key: str, width: int) -> list[Text]:
        """The marked locks in full; nothing where ``key`` is of another row."""
        one = next((one for one in self.holdings() if one.key == key), None)
        if one is None:
            return []
        look = self.panel.look
        role = "warn" if one.orphaned else "text"
        lines = [line for words in lockfacts.sentences(one) for line in wrapped(look, words, width, role)]
        return [*lines, *pairs_lines(lockfacts.pairs(one, self._indices()), look, width)]
