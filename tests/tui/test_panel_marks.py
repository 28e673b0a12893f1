"""Stages that are marked for one start."""

from __future__ import annotations

from eagle3_backend.control.commands import DryRun, Forecast, Start
from eagle3_tui.widgets.pipeline import Pipeline


def starts(panel) -> list:
    return [one for one in panel.source.commands if isinstance(one, Start)]


async def test_space_marks_stages_with_glyph_and_word_and_one_start_runs_them(show) -> None:
    async with show("refused", (80, 24)) as panel:
        await panel.press("j", "space", "j", "space")
        told = panel.text()
        assert "2 marked" in told
        assert " ◆○ evaluate" in told and "▸◆○ export" in told
        assert told.count("blocked  marked · ") == 2
        await panel.press("s")
        told = panel.text()
        assert "◆ marked: evaluate, export" in told
        assert "will run: train → evaluate → export" in told
        assert panel.source.commands[-2:] == [Forecast("export", ("evaluate",)), DryRun("export", ("evaluate",))]
        panel.source.scene = "train"
        await panel.press("enter")
        assert starts(panel) == [Start("export", also=("evaluate",))]
        assert "◆" not in panel.text()


async def test_a_service_that_is_marked_runs_behind_the_others(show) -> None:
    async with show("refused", (80, 24)) as panel:
        panel.app.screen.query_one(Pipeline).marked = frozenset({"serve", "bench"})
        await panel.press("s")
        assert "train → export → bench → serve" in panel.text()


async def test_space_again_takes_one_mark_off_and_esc_all(show) -> None:
    async with show("refused", (80, 24)) as panel:
        await panel.press("space", "j", "space", "space")
        assert panel.app.screen.query_one(Pipeline).marked_in_order == ("train",)
        assert " ○ evaluate" in panel.text().replace("▸", " ")
        await panel.press("escape")
        assert "◆" not in panel.text() and "1 marked" not in panel.text()


async def test_a_start_that_is_left_keeps_the_marks(show) -> None:
    async with show("refused", (80, 24)) as panel:
        await panel.press("space", "s", "escape")
        assert "1 marked" in panel.text() and starts(panel) == []


async def test_one_marked_stage_at_work_stands_against_the_start_of_all(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("space", "j", "space", "s")
        assert "cannot start: train is running already" in panel.text() and starts(panel) == []


async def test_looking_only_still_marks_and_refuses_the_start(show) -> None:
    async with show("refused", (80, 24), readonly=True) as panel:
        await panel.press("space")
        assert "1 marked" in panel.text()
        await panel.press("s")
        assert "cannot start: the panel was opened with --readonly" in panel.text() and starts(panel) == []


async def test_marks_are_seen_without_unicode(show) -> None:
    async with show("refused", (80, 24), ascii_only=True) as panel:
        await panel.press("space")
        assert ">@o train" in panel.text() and "1 marked" in panel.text()
