"""The first line: host, link, campaign, skew and clock."""

from __future__ import annotations

import time

from rich.text import Text

from eagle3_backend.control.snapshot import HostView, Snapshot
from eagle3_backend.states import LinkState
from eagle3_tui.pace import is_away, is_settled
from eagle3_tui.text import clean, shorten, span
from eagle3_tui.theme import Look, Piece
from eagle3_tui.widgets.picture import Picture


def age_words(host: HostView, now: float) -> str:
    """ "as of 12s ago" while the link is down, for the titles of what is shown all the same."""
    if host.link is LinkState.LIVE or host.data_at is None:
        return ""
    return f"as of {span(now - host.data_at)} ago"


def link_words(host: HostView, now: float, look: Look) -> tuple[str, str]:
    """Glyph and words of a link, and their role; ``now`` is monotonic."""
    glyph, role = look.link(host.link)
    for_now = max(0.0, now - host.since)
    if host.offered_key and host.link is not LinkState.KEY_CHANGED:
        return f"{look.glyph('warn')} verify host key", "warn"
    if host.link is LinkState.LIVE:
        return f"{glyph} live" + (f" {host.latency * 1000:.0f}ms" if host.latency is not None else ""), role
    if host.link is LinkState.CONNECTING:
        return f"{glyph} connecting {span(for_now)}", role
    if host.link is LinkState.STALE:
        return f"{glyph} last data {span(now - (host.data_at if host.data_at is not None else host.since))}", role
    if host.link is LinkState.RECONNECTING:
        words = f"{glyph} reconnecting {span(for_now)}"
        if host.attempt:
            words += f", try {host.attempt}"
            if host.retry_at and host.retry_at > now and not is_settled(host, now):
                words += f" in {span(host.retry_at - now)}"
        return words, role
    return f"{glyph} {host.link.value.replace('_', ' ')}", role


class HeaderBar(Picture):
    """Everything in it is remote or small; parts are dropped from the least needed on when it does not fit."""

    def tick(self) -> None:
        """Let the clock and the ages go on."""
        self.redraw()

    def lines(self, width: int, height: int) -> list[Text]:
        snapshot: Snapshot | None = self.part
        if snapshot is None:
            return [self.look.line((" eagle3-tui", "accent bold"))]
        # Seconds show that the panel moves; without a link it stands still, and each would be a repaint.
        shown = "%H:%M" if is_away(snapshot.host) else "%H:%M:%S"
        clock = time.strftime(shown, time.localtime(self.panel.wall()))
        skew = snapshot.host.skew
        skew_words = f"skew {skew:+.1f}s" if skew is not None and abs(skew) >= 0.05 else ""
        host = self.look.remote(clean(snapshot.host.name or "no host yet", 64))
        campaign = self.look.remote(clean(snapshot.campaign, 64))
        words, role = link_words(snapshot.host, self.panel.monotonic(), self.look)
        for brand, shown_campaign, shown_skew, shown_clock in (
            (True, campaign, skew_words, clock),
            (True, campaign, "", clock),
            (False, campaign, "", clock),
            (False, shorten(campaign, 12, self.look.glyph("more")), "", ""),
            (False, "", "", ""),
        ):
            text = self._line(brand, host, (words, role), shown_campaign)
            right = "  ".join(part for part in (shown_skew, shown_clock) if part)
            gap = width - text.cell_len - len(right) - 1
            if gap >= (2 if right else 0):
                text.append(" " * gap + right, self.look.style("dim"))
                return [text]
        text = self.look.line(" ", (words, role))
        text.truncate(width, overflow="ellipsis" if not self.look.ascii_only else "crop")
        return [text]

    def _line(self, brand: bool, host: str, link: tuple[str, str], campaign: str) -> Text:
        arrow = (f" {self.look.glyph('here')} ", "dim")
        pieces: list[Piece] = [" "]
        if brand:
            pieces += [("eagle3-tui", "accent bold"), arrow]
        pieces += [(host, "text bold"), " ", link]
        if campaign:
            pieces += [arrow, campaign]
        return self.look.line(*pieces)
