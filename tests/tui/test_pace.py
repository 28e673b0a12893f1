"""What is drawn, and when, while nobody touches the panel."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from textual.widget import Widget

from eagle3_backend.control.snapshot import HostView
from eagle3_backend.states import LinkState
from eagle3_tui.pace import ANSWER_SECONDS, HELD_SECONDS, RATES, Pace, age_seconds
from eagle3_tui.screens.dialogs import ConfirmDialog
from eagle3_tui.widgets.header import HeaderBar

LOST = HostView("h200-a", LinkState.RECONNECTING, since=1000.0)


@pytest.fixture
def drawn(monkeypatch) -> list[Widget]:
    """The widgets that asked for a repaint, in order."""
    widgets: list[Widget] = []
    refresh = Widget.refresh

    def noted(widget: Widget, *regions, **options):
        widgets.append(widget)
        return refresh(widget, *regions, **options)

    monkeypatch.setattr(Widget, "refresh", noted)
    return widgets


def held(panel, host: HostView) -> None:
    """From now on the same picture, with this host."""
    picture = replace(panel.app.picture, version=10**6, host=host)
    panel.source.snapshot = lambda: picture
    panel.app.pull()


async def test_without_a_link_a_panel_at_rest_repaints_its_first_line_alone_and_seldom(show, drawn) -> None:
    async with show("train", (120, 40)) as panel:
        held(panel, replace(LOST, since=panel.clock.now - 600))
        await panel.pass_time(1.0)
        drawn.clear()
        for _ in range(9):
            await panel.pass_time(1.0)
        assert drawn == []
        await panel.pass_time(1.0)
        assert {type(widget) for widget in drawn} == {HeaderBar}
        assert "reconnecting 10m11s" in panel.text()


async def test_what_lies_under_a_dialog_is_not_painted_again_for_its_ages(show, drawn) -> None:
    async with show("train", (120, 40)) as panel:
        held(panel, LOST)
        await panel.app.push_screen(ConfirmDialog("Sure", "Is it?", "yes"))
        await panel.pass_time(5.0)
        drawn.clear()
        for _ in range(40):
            panel.clock.now += 1.0
            panel.app._tick()
        await panel.settle()
        assert drawn == []
        await panel.press("escape")
        await panel.pass_time(5.0)  # the panel's own timer may have stepped the age just before
        assert "reconnecting 50s" in panel.text()


async def test_news_under_a_dialog_is_drawn_a_little_later(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.app.push_screen(ConfirmDialog("Sure", "Is it?", "yes"))
        await panel.pass_time(2.0)
        await panel.pass_time(0.1)
        held(panel, LOST)
        await panel.settle()
        assert "reconnecting" not in panel.text()
        await panel.pass_time(2.0)
        assert "reconnecting" in panel.text()


async def test_news_that_comes_in_a_pause_is_drawn_when_redrawing_goes_on(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press(*"PPPPP")
        held(panel, LOST)
        await panel.pass_time(5.0)
        assert "reconnecting" not in panel.text()
        await panel.press("P")
        assert "reconnecting" in panel.text()


async def test_a_picture_that_control_makes_is_drawn_without_a_question(show) -> None:
    async with show("train", (120, 40)) as panel:
        picture = replace(panel.app.picture, version=10**6, host=LOST)
        panel.source.snapshot = lambda: picture
        panel.source._changed()
        await panel.settle()
        assert "reconnecting" in panel.text()


def test_a_rate_says_how_long_a_picture_waits() -> None:
    pace, waits = Pace(), []
    pace.drawn(100.0)
    for _ in RATES:
        waits.append(pace.wait(100.2))
        pace.choose_next()
    assert waits == pytest.approx([0.0, 0.05, 0.3, 0.8, 1.8, math.inf])


def test_ages_go_on_the_more_seldom_the_longer_a_link_is_away() -> None:
    away = [age_seconds(LOST, 1000.0 + age, covered=False) for age in (0, 9, 10, 59, 60, 10**6)]
    assert away == [2.0, 2.0, 5.0, 5.0, 10.0, 10.0]
    assert age_seconds(replace(LOST, link=LinkState.LIVE), 2000.0, covered=False) == 1.0


async def test_what_a_key_brings_is_drawn_before_what_is_new(show, monkeypatch) -> None:
    async with show("train", (120, 40)) as panel:
        monkeypatch.setattr("eagle3_tui.pace.ANSWER_SECONDS", ANSWER_SECONDS)
        await panel.pilot.press("?")
        held(panel, LOST)
        await panel.settle()
        assert "Help" in panel.text() and "reconnecting" not in panel.text()
        panel.clock.now += ANSWER_SECONDS
        await panel.until(lambda: "reconnecting" in panel.text())


def test_held_keys_do_not_hold_back_what_is_new_for_long() -> None:
    pace, drawn = Pace(), []
    for step in range(100):  # thirty keys and as many pictures a second
        now = 50.0 + step / 30
        pace.pressed(now)
        if pace.wait(now) == 0:
            pace.drawn(now)
            drawn.append(now)
    gaps = [later - earlier for earlier, later in pairwise(drawn)]
    assert len(gaps) >= 4 and max(gaps) < HELD_SECONDS + 0.1
