from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.color import Color, ColorSystem

import eagle3_tui
from eagle3_backend.states import LinkState, RunState
from eagle3_tui import theme

TEXT_ROLES = ("text", "dim", "accent", "good", "active", "warn", "bad")


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", theme.PALETTES)
@pytest.mark.parametrize("role", TEXT_ROLES)
def test_text_stands_out_from_panels_and_dialogs(name: str, role: str) -> None:
    palette = theme.PALETTES[name]
    assert contrast(getattr(palette, role), palette.background) >= 4.5
    assert contrast(getattr(palette, role), palette.surface) >= 4.5


@pytest.mark.parametrize("name", theme.PALETTES)
def test_keys_that_are_off_can_still_be_read(name: str) -> None:
    palette = theme.PALETTES[name]
    assert 3.0 <= contrast(palette.off, palette.surface) < contrast(palette.dim, palette.surface)


@pytest.mark.parametrize("name", theme.PALETTES)
@pytest.mark.parametrize("role", TEXT_ROLES)
def test_no_text_vanishes_in_sixteen_colours(name: str, role: str) -> None:
    palette = theme.PALETTES[name]

    def sixteen(colour: str) -> Color:
        return Color.parse(colour).downgrade(ColorSystem.STANDARD)

    assert sixteen(getattr(palette, role)) not in (sixteen(palette.background), sixteen(palette.surface))


@pytest.mark.parametrize("name", ["eagle-dark-16", "eagle-light-16"])
def test_states_keep_their_colours_in_sixteen(name: str) -> None:
    palette = theme.PALETTES[name]
    roles = ("accent", "good", "active", "warn", "bad")
    numbers = [Color.parse(getattr(palette, role)).downgrade(ColorSystem.STANDARD).number for role in roles]
    greys = {0, 7, 8, 15}
    assert len(set(numbers)) == len(roles) and not greys & set(numbers)
    assert Color.parse(palette.off).downgrade(ColorSystem.STANDARD).number in greys


def test_the_palette_goes_by_what_the_terminal_can_show() -> None:
    assert theme.palette_name("truecolor") == theme.palette_name("256") == theme.palette_name(None) == "eagle-dark"
    assert theme.palette_name("standard", dark=False) == theme.palette_name("windows", dark=False) == "eagle-light-16"


def test_every_state_has_a_glyph_and_a_role_of_its_look() -> None:
    look = theme.Look()
    for state in RunState:
        glyph, role = look.run(state)
        assert glyph in look.glyphs.values() and look.style(role)
    for link in LinkState:
        glyph, role = look.link(link)
        assert glyph in look.glyphs.values() and look.style(role)


def test_good_and_bad_endings_differ_without_colour() -> None:
    look = theme.Look()
    assert look.run(RunState.DONE)[0] != look.run(RunState.FAILED)[0] != look.run(RunState.STOPPED)[0]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_glyphs_are_one_cell_wide(ascii_only: bool) -> None:
    glyphs = theme.Look(ascii_only=ascii_only).glyphs
    assert all(cell_len(glyph) == len(glyph) for glyph in glyphs.values())
    assert all(cell_len(glyph) == 1 for name, glyph in glyphs.items() if name not in ("to", "corners"))


def test_the_ascii_set_replaces_every_glyph() -> None:
    assert theme.Look(ascii_only=True).glyphs.keys() == theme.Look().glyphs.keys()
    assert all(glyph.isascii() for glyph in theme.Look(ascii_only=True).glyphs.values())


def test_colours_are_named_in_the_palettes_only() -> None:
    folder = Path(eagle3_tui.__file__).parent
    files = [*(folder / "widgets").glob("*.py"), *(folder / "screens").glob("*.py"), folder / "theme" / "panel.tcss"]
    assert [file.name for file in files if re.search(r"['\"\s]#[0-9a-fA-F]{6}\b", file.read_text())] == []
