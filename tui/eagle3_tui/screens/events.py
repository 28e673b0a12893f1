"""Everything that happened, also while nobody looked; what came since the last look is marked."""

from __future__ import annotations

import json
import time

from rich.text import Text

from eagle3_backend.control.snapshot import Event
from eagle3_tui.bindings import bindings
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import wrapped
from eagle3_tui.widgets.table import Row, Table


class EventsScreen(TableScreen):
    """Newest first."""

    BINDINGS = bindings("events")
    context = "events"

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._filter = ""

    def on_mount(self) -> None:
        self._seen = self.panel.seen_events
        self.panel.seen_events = max((event.at for event in self.panel.picture.events), default=0.0)

    def _shown(self) -> list[Event]:
        words = self._filter.lower().split()
        events = [event for event in reversed(self.panel.picture.events)]
        told = ((event, f"{event.severity} {event.source} {event.kind} {event.text}".lower()) for event in events)
        return [event for event, text in told if all(word in text for word in words)]

    def table(self) -> Table:
        look, shown = self.panel.look, self._shown()
        rows = []
        for number, event in enumerate(shown):
            glyph, role = look.severity(event.severity)
            at = time.strftime("%m-%d %H:%M:%S", time.localtime(event.at))
            new = event.at > self._seen
            rows.append(
                Row(
                    f"{event.at}{event.text}{number}",
                    ((at, "text" if new else "dim"), (glyph, role), (event.source, "accent"), (event.text, "text")),
                )
            )
        unread = sum(event.at > self._seen for event in shown)
        facts = ["Events", f"{len(shown)}", f"{unread} new" if unread else ""]
        facts.append(f"only {self._filter}" if self._filter else "")
        empty = "no event has these words" if self._filter else "nothing has happened yet"
        return Table(look.joined(facts), ("when", " ", "where", "what"), tuple(rows), empty)

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        for number, event in enumerate(self._shown()):
            if f"{event.at}{event.text}{number}" == key:
                lines = wrapped(look, clean(event.text, 4000), width)
                if event.data:
                    data = json.dumps(event.data, ensure_ascii=False, default=str)
                    lines += wrapped(look, clean(data, 4000), width, "dim")
                return lines
        return []

    def action_filter_events(self) -> None:
        self.panel.ask_line("/", self._filter, self._set_filter, "words that an event has to have; empty shows all")

    def _set_filter(self, text: str) -> None:
        self._filter = text.strip()
        self.redraw()

    def leave(self) -> None:
        if self._filter:
            self._set_filter("")
        else:
            super().leave()
