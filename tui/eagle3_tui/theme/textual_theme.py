"""The palettes as Textual themes."""

from __future__ import annotations

from textual.theme import Theme

from eagle3_tui.theme import PALETTES


def themes() -> list[Theme]:
    """One Textual theme for each palette; CSS uses $background, $surface, $foreground, $line, $accent and $dim."""
    made = []
    for name, palette in PALETTES.items():
        made.append(
            Theme(
                name=name,
                primary=palette.accent,
                secondary=palette.active,
                accent=palette.accent,
                warning=palette.warn,
                error=palette.bad,
                success=palette.good,
                foreground=palette.text,
                background=palette.background,
                surface=palette.surface,
                panel=palette.surface,
                dark="dark" in name,
                variables={"line": palette.line, "dim": palette.dim, "scrollbar": palette.line},
            )
        )
    return made
