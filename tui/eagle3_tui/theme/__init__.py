"""How the panel looks: two calm palettes and two glyph sets. A state is always glyph, word and colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from eagle3_backend.findings import Severity
from eagle3_backend.states import LinkState, RunState

Piece = str | tuple[str, str]
"""Text in the default style, or (text, role)."""


@dataclass(frozen=True)
class Palette:
    """Colours by what they mean; each text colour has a contrast of at least 4.5 on ``background``."""

    background: str
    surface: str
    text: str
    dim: str
    accent: str
    good: str
    active: str
    warn: str
    bad: str
    off: str
    """Keys that do nothing now; contrast at least 3."""
    line: str
    """Borders of panels without the focus, and the empty part of bars; not text."""


DARK = Palette(
    background="#14171c",
    surface="#1d2229",
    text="#d5dae0",
    dim="#8f98a3",
    accent="#86c5da",
    good="#8ecf92",
    active="#8ab4f8",
    warn="#e6c57a",
    bad="#f28b82",
    off="#6f7884",
    line="#4a525c",
)

LIGHT = Palette(
    background="#f8f8f5",
    surface="#ecece7",
    text="#23282e",
    dim="#5a636d",
    accent="#0b6580",
    good="#1b6e34",
    active="#1553b0",
    warn="#7d5800",
    bad="#b0261d",
    off="#7f858b",
    line="#b4b8bc",
)

# A terminal with 16 colours takes the nearest of its own: calm colours would all be grey there.
DARK_16 = Palette(
    background="#14171c",
    surface="#1d2229",
    text="#ffffff",
    dim="#aaaaaa",
    accent="#00aaaa",
    good="#55ff55",
    active="#7a7aff",
    warn="#ffff55",
    bad="#ff6a6a",
    off="#808080",
    line="#555555",
)

LIGHT_16 = Palette(
    background="#f8f8f5",
    surface="#ecece7",
    text="#000000",
    dim="#555555",
    accent="#007474",
    good="#007a00",
    active="#0000aa",
    warn="#8a5a00",
    bad="#aa0000",
    off="#777777",
    line="#aaaaaa",
)

PALETTES = {"eagle-dark": DARK, "eagle-light": LIGHT, "eagle-dark-16": DARK_16, "eagle-light-16": LIGHT_16}


def palette_name(colours: str | None, dark: bool = True) -> str:
    """The name of the palette for a terminal, whose ``colours`` are as Rich calls them."""
    return f"eagle-{'dark' if dark else 'light'}{'-16' if colours in ('standard', 'windows') else ''}"


_UNICODE = {
    "ok": "✓",
    "run": "●",
    "idle": "○",
    "stop": "■",
    "here": "▸",
    "mark": "◆",
    "half": "◐",
    "dots": "◌",
    "bad": "✕",
    "warn": "!",
    "full": "█",
    "empty": "░",
    "dot": "·",
    "more": "…",
    "down": "▼",
    "axis": "┤",
    "corner": "└",
    "to": "→",
    "rule": "─",
    "side": "│",
    "corners": "┌┐└┘",
}
_ASCII = {
    "ok": "+",
    "run": "*",
    "idle": "o",
    "stop": "#",
    "here": ">",
    "mark": "@",
    "half": "~",
    "dots": ".",
    "bad": "x",
    "warn": "!",
    "full": "#",
    "empty": ".",
    "dot": "-",
    "more": "~",
    "down": "v",
    "axis": "|",
    "corner": "+",
    "to": "->",
    "rule": "-",
    "side": "|",
    "corners": "++++",
}

_RUN = {
    RunState.BLOCKED: ("idle", "dim"),
    RunState.READY: ("idle", "text"),
    RunState.QUEUED: ("dots", "active"),
    RunState.STARTING: ("half", "active"),
    RunState.RUNNING: ("run", "active"),
    RunState.STOPPING: ("half", "warn"),
    RunState.STOPPED: ("stop", "warn"),
    RunState.DONE: ("ok", "good"),
    RunState.FAILED: ("bad", "bad"),
    RunState.CRASHED: ("bad", "bad"),
    RunState.LOST: ("bad", "bad"),
    RunState.UNKNOWN: ("dots", "dim"),
}

_LINK = {
    LinkState.OFFLINE: ("idle", "dim"),
    LinkState.CONNECTING: ("dots", "active"),
    LinkState.LIVE: ("run", "good"),
    LinkState.STALE: ("run", "warn"),
    LinkState.RECONNECTING: ("half", "warn"),
    LinkState.DENIED: ("bad", "bad"),
    LinkState.KEY_CHANGED: ("bad", "bad"),
}

_SEVERITY = {"info": ("dot", "dim"), "ok": ("ok", "good"), "warning": ("warn", "warn"), "error": ("bad", "bad")}


class Look:
    """A palette and a glyph set; turns pieces of text with roles into styled lines."""

    def __init__(self, palette: Palette = DARK, ascii_only: bool = False) -> None:
        self.palette = palette
        self.ascii_only = ascii_only
        self.glyphs = _ASCII if ascii_only else _UNICODE
        colours = {role: getattr(palette, role) for role in palette.__dataclass_fields__}
        self._styles = {role: Style(color=colour) for role, colour in colours.items()}
        self._styles |= {f"{role} bold": style + Style(bold=True) for role, style in self._styles.items()}
        self._styles["found"] = Style(reverse=True, bold=True)

    def style(self, role: str) -> Style:
        return self._styles[role]

    def glyph(self, name: str) -> str:
        return self.glyphs[name]

    def remote(self, text: str) -> str:
        """Remote text in the glyph set in use."""
        return text.encode("ascii", "replace").decode() if self.ascii_only else text

    def line(self, *pieces: Piece) -> Text:
        """One line of styled text; nothing in it is read as markup."""
        text = Text(no_wrap=True, end="")
        for piece in pieces:
            words, role = (piece, "text") if isinstance(piece, str) else piece
            text.append(words, self._styles[role])
        return text

    def run(self, state: RunState) -> tuple[str, str]:
        """Glyph and role of a run's state; its word is the state's value."""
        name, role = _RUN[state]
        return self.glyphs[name], role

    def link(self, state: LinkState) -> tuple[str, str]:
        name, role = _LINK[state]
        return self.glyphs[name], role

    def severity(self, severity: Severity | str) -> tuple[str, str]:
        """Glyph and role of a finding's or an event's severity; an unknown word reads as information."""
        word = severity.value if isinstance(severity, Severity) else severity
        name, role = _SEVERITY.get(word, _SEVERITY["info"])
        return self.glyphs[name], role

    def joined(self, parts: Sequence[str]) -> str:
        """Short facts on one line, with the separator of this glyph set."""
        return f" {self.glyphs['dot']} ".join(part for part in parts if part)
