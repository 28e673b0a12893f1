"""A new screen is styled and painted when it is ready, and not before; what lies under it is left alone."""

from __future__ import annotations

from collections import Counter

import pytest
from textual._compositor import Compositor
from textual.css.stylesheet import Stylesheet

from eagle3_tui.app import Panel


@pytest.mark.parametrize(("key", "shown"), [("m", "dockerd"), ("enter", "max_position_too_short"), ("x", "Stop train")])
async def test_the_first_picture_of_a_screen_has_all_that_is_there_already(show, monkeypatch, key, shown) -> None:
    async with show() as panel:
        pictures: list[str] = []
        opened = panel.app.screen
        display = Panel._display

        def noted(app, screen, picture) -> None:
            if screen is not opened and picture is not None:
                pictures.append(panel.text())
            display(app, screen, picture)

        monkeypatch.setattr(Panel, "_display", noted)
        await panel.press(key)
        assert shown in pictures[0] and pictures[0] == pictures[-1]


async def test_opening_a_screen_styles_its_widgets_as_they_come_and_lays_out_nothing_underneath(
    show, monkeypatch
) -> None:
    async with show() as panel:
        styled: Counter[object] = Counter()
        laid_out: Counter[object] = Counter()
        opened = panel.app.screen
        apply, reflow = Stylesheet.apply, Compositor.reflow

        def noted_apply(self, node, **options) -> None:
            styled[node] += 1
            apply(self, node, **options)

        def noted_reflow(self, parent, size):
            laid_out[parent] += 1
            return reflow(self, parent, size)

        monkeypatch.setattr(Stylesheet, "apply", noted_apply)
        monkeypatch.setattr(Compositor, "reflow", noted_reflow)
        await panel.press("enter")
        screen = panel.app.screen
        assert screen is not opened and opened not in laid_out
        again = [node for node in screen.query("*") if styled[node] > 1 and not node.has_focus]
        assert not again and all(styled[node] for node in screen.query(".panel"))


async def test_another_size_is_laid_out_on_each_screen_that_is_seen(show) -> None:
    async with show() as panel:
        await panel.press("x")
        await panel.pilot.resize_terminal(100, 30)
        await panel.settle()
        assert {screen._compositor.size for screen in panel.app.screen_stack} == {(100, 30)}
        await panel.press("escape")
        assert panel.app.screen.size == (100, 30)
