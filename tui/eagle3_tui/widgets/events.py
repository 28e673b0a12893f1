"""What happened, newest first."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.text import Text

from eagle3_backend.control.snapshot import Event
from eagle3_tui.text import clean, shorten
from eagle3_tui.theme import Look
from eagle3_tui.widgets.picture import Picture


def event_line(event: Event, look: Look, width: int) -> Text:
    glyph, role = look.severity(event.severity)
    at = time.strftime("%H:%M:%S", time.localtime(event.at))
    words = look.remote(f"{clean(event.source, 40)}: {clean(event.text)}" if event.source else clean(event.text))
    return look.line((f" {at} ", "dim"), (f"{glyph} ", role), shorten(words, max(1, width - 12), look.glyph("more")))


@dataclass(frozen=True)
class Told:
    """Events, oldest first, and how many of them the operator has not looked at."""

    events: tuple[Event, ...] = ()
    new: int = 0

    @classmethod
    def of(cls, events: tuple[Event, ...], seen: float) -> Told:
        return cls(events, sum(event.at > seen for event in events))


class Events(Picture):
    @property
    def _told(self) -> Told:
        return self.part or Told()

    def title(self, width: int) -> Text:
        new = self._told.new
        return Text(self.look.joined(["Events", f"{new} new" if new else ""]))

    def lines(self, width: int, height: int) -> list[Text]:
        events = self._told.events
        if not events:
            return [self.look.line((" nothing has happened yet", "dim"))]
        return [event_line(event, self.look, width) for event in reversed(events[-height:])]
