"""What happened, newest first."""

from __future__ import annotations

import time

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


class Events(Picture):
    def title(self, width: int) -> Text:
        return Text("Events")

    def lines(self, width: int, height: int) -> list[Text]:
        events: tuple[Event, ...] = self.part or ()
        if not events:
            return [self.look.line((" nothing has happened yet", "dim"))]
        return [event_line(event, self.look, width) for event in reversed(events[-height:])]
