"""The layout at sizes from far too small to very large."""

from __future__ import annotations

import pytest

from eagle3_tui.keymap import name_of
from eagle3_tui.widgets.footer import chosen

SIZES = [(40, 10), (52, 12), (59, 24), (60, 16), (66, 18), (80, 24), (80, 50), (100, 21), (100, 30), (120, 40),
         (180, 36), (200, 15), (200, 60), (240, 70)]  # fmt: skip
SCENES = ["train", "first", "cpu", "reconnecting", "failed", "empty"]


def check(panel, size: tuple[int, int]) -> None:
    """Nothing is cut off, the footer is whole, and the focus can be seen."""
    lines = panel.lines()
    assert len(lines) == size[1]
    assert {len(line) for line in lines} == {size[0]}
    screen = panel.app.screen
    shown = [widget for widget in screen.query(".panel, #header, #footer, #small") if widget.region.area]
    for widget in shown:
        geometry = screen._compositor.full_map[widget]
        assert geometry.visible_region == geometry.region, (size, widget, geometry.region)
        if widget.has_class("panel"):
            assert widget.region.height >= 3 and widget.region.width >= 24, (size, widget, widget.region)
    for key in chosen(screen.context, size[0]):
        assert f"{name_of(key.keys[0])} {key.help}" in lines[-1]
    if size[0] >= 60 and size[1] >= 16:
        assert screen.focused is not None and screen.focused.region.area
        assert sum(line.count("┏") for line in lines) == 1
    else:
        assert "60x16 needed" in panel.text()


@pytest.mark.parametrize("scene", SCENES)
async def test_nothing_overflows_at_any_size(show, scene) -> None:
    async with show(scene, (120, 40)) as panel:
        for size in SIZES:
            await panel.pilot.resize_terminal(*size)
            await panel.settle()
            check(panel, size)


@pytest.mark.parametrize("size", SIZES[::3])
async def test_a_panel_opened_at_a_size_looks_as_one_resized_to_it(show, size) -> None:
    async with show("train", size) as panel:
        check(panel, size)
        opened = panel.lines()
    async with show("train", (90, 28)) as panel:
        await panel.pilot.resize_terminal(*size)
        await panel.settle()
        await panel.settle()
        assert [line[:-2] for line in panel.lines()] == [line[:-2] for line in opened]  # but for the scrollbar


async def test_the_stage_screen_and_help_fit_too(show) -> None:
    for keys in (["enter"], ["question_mark"]):
        async with show("failed", (120, 40)) as panel:
            await panel.press(*keys)
            for size in SIZES:
                await panel.pilot.resize_terminal(*size)
                await panel.settle()
                lines = panel.lines()
                assert {len(line) for line in lines} == {size[0]}
                for key in chosen(panel.app.screen.context, size[0]):
                    assert f"{name_of(key.keys[0])} {key.help}" in lines[-1]


@pytest.mark.parametrize(
    ("scene", "keys"), [("train", "x"), ("refused", "s"), ("key_unknown", ""), ("key_changed", "")]
)
async def test_dialogs_fit_the_smallest_usable_terminal(show, scene, keys) -> None:
    async with show(scene, (60, 16)) as panel:
        await panel.press(*keys)
        box = panel.app.screen.query_one("#box")
        assert panel.app.screen.region.contains_region(box.region)
        assert "esc back" in panel.text()


async def test_a_storm_of_resizes_ends_in_the_right_picture(show) -> None:
    async with show("train", (120, 40)) as panel:
        before = panel.lines()
        for step in range(40):
            await panel.pilot.resize_terminal(40 + step * 5, 10 + step)
        await panel.pilot.resize_terminal(120, 40)
        await panel.settle()
        await panel.settle()
        assert panel.lines() == before


async def test_resizing_rebuilds_no_widget(show) -> None:
    async with show("train", (80, 24)) as panel:
        before = list(panel.app.screen.query("*"))
        await panel.pilot.resize_terminal(200, 60)
        await panel.settle()
        assert list(panel.app.screen.query("*")) == before
