"""What is really drawn, not only the palette: contrast in both themes and in 16 colours, and words without colour."""

from __future__ import annotations

import pytest
from rich.color import ColorSystem

from eagle3_tui.theme import PALETTES

SCREENS = ["", "enter", "z", "t", "m", "e", "v", "B", "question_mark", "s", "x", "d", "ctrl+p", "colon"]


def luminance(parts) -> float:
    """Relative luminance, WCAG 2.1."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (part / 255 for part in parts)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def check_readable(panel, name: str) -> None:
    """Each word stands out from what it is drawn on; the palette's `off` may do so less, and nothing vanishes."""
    off = PALETTES[name].off
    background = panel.app.screen.styles.background
    for strip in panel.app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style
            if style is None or not any(character.isalnum() for character in segment.text):
                continue
            ink, paper = style.color, style.bgcolor
            assert ink is not None and paper is not None and not style.dim and not style.conceal, segment
            if style.reverse:
                ink, paper = paper, ink
            light, dark = sorted((luminance(ink.get_truecolor()), luminance(paper.get_truecolor())), reverse=True)
            least = 3.0 if ink.name == off else 4.5
            if not panel.app.screen.is_modal or paper.get_truecolor() == PALETTES[name].surface:
                assert (light + 0.05) / (dark + 0.05) >= least, (segment, background)
                assert ink.downgrade(ColorSystem.STANDARD) != paper.downgrade(ColorSystem.STANDARD), segment


@pytest.mark.parametrize("name", PALETTES)
async def test_every_word_can_be_read(show, monkeypatch, name) -> None:
    if name.endswith("16"):
        monkeypatch.setattr("rich.console.Console.color_system", "standard")
    async with show("train", (100, 30)) as panel:
        if "light" in name:
            await panel.press("ctrl+t")
        assert panel.app.theme == name
        for key in SCREENS:
            if key:
                await panel.press(key)
            check_readable(panel, name)
            if key:
                await panel.press("escape")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_without_colour_the_same_words_and_frames_are_drawn(show, compare, monkeypatch, size) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with show("failed", size) as panel:
        assert panel.app.no_color
        compare(f"dashboard-failed-{size[0]}x{size[1]}", panel.lines())
        await panel.press("enter")
        await panel.settle()
        compare(f"stage-failed-{size[0]}x{size[1]}", panel.lines())


async def test_in_plain_ascii_without_colour_the_focus_is_seen(show, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with show("train", (80, 24), ascii_only=True) as panel:
        for title in ("Pipeline", "Log"):
            strips = panel.app.screen._compositor.render_strips()
            marked = [segment.text for strip in strips for segment in strip if segment.style and segment.style.reverse]
            assert len(marked) == 1 and marked[0].strip().startswith(title)
            await panel.press("tab")
