"""A new screen is painted when it is ready, and not before."""

from __future__ import annotations

import pytest

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
