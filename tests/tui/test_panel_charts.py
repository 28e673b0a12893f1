"""The chart on the whole screen, by its keys."""

from __future__ import annotations

import pytest

from eagle3_tui.screens.chart import ChartScreen


async def opened(panel) -> ChartScreen:
    await panel.press("z")
    await panel.settle()
    screen = panel.app.screen
    assert isinstance(screen, ChartScreen)
    return screen


async def test_z_shows_the_first_curve_with_axes_and_its_newest_value(show) -> None:
    async with show("train", (120, 40)) as panel:
        await opened(panel)
        told = panel.text()
        assert "train/loss · 1 of" in told and "by step" in told
        assert "└" in told and "18300" in told and "train/loss  1.637 at 18300" in told
        await panel.press("z")
        assert "Pipeline" in panel.text()


async def test_steps_of_a_measure_share_a_chart(show) -> None:
    async with show("train", (120, 40)) as panel:
        screen = await opened(panel)
        while not screen._chart.endswith("by step"):
            await panel.press("down")
        told = panel.text()
        assert all(f"train/loss_{depth}  " in told for depth in range(3))


async def test_the_cursor_tells_the_value_where_it_stands(show) -> None:
    async with show("train", (120, 40)) as panel:
        await opened(panel)
        await panel.press(*["comma"] * 30)
        assert "at 9150" in panel.text() or "at 9200" in panel.text()


async def test_zoom_pan_and_back(show) -> None:
    async with show("train", (120, 40)) as panel:
        screen = await opened(panel)
        await panel.press("plus", "plus")
        low, high = screen._view.low, screen._view.high
        assert high - low == pytest.approx((18300 - 50) / 4) and "0 shows all" in panel.text()
        await panel.press("left")
        assert screen._view.low < low
        await panel.press("0")
        assert (screen._view.low, screen._view.high) == (50, 18300)


async def test_logarithm_smoothing_and_time_are_told_in_the_title(show) -> None:
    async with show("train", (120, 40)) as panel:
        await opened(panel)
        await panel.press("tilde", "percent_sign", "number_sign")
        await panel.settle()
        told = panel.text()
        assert "logarithmic" in told and "smoothed 0.6" in told and "by time" in told


async def test_another_run_is_drawn_beside_this_one_and_let_go(show) -> None:
    async with show("train", (120, 40)) as panel:
        screen = await opened(panel)
        for count in (1, 0):
            await panel.press("p")
            await panel.settle()
            assert "Compare train with" in panel.text()
            await panel.press("enter")
            await panel.settle()
            assert len(screen._pinned) == count
        await panel.press("p", "escape")
        assert not screen._pinned


async def test_a_chart_is_saved_as_picture_and_as_table(show, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("eagle3_tui.saving.saved_files", lambda: tmp_path / "saved")
    async with show("train", (120, 40)) as panel:
        await opened(panel)
        await panel.press("Y")
        files = sorted(path.name.partition("-train")[2] for path in (tmp_path / "saved").iterdir())
        assert files == ["-loss.csv", "-loss.svg"] and panel.app.message[0].startswith("saved ")


async def test_a_folder_that_cannot_be_written_is_told(show, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("eagle3_tui.saving.saved_files", lambda: tmp_path / "file" / "saved")
    async with show("train", (120, 40)) as panel:
        await panel.press("S")
        assert panel.app.message[0].startswith("cannot save")


async def test_without_series_the_chart_waits(show) -> None:
    async with show("first", (120, 40)) as panel:
        await panel.press("z")
        await panel.settle()
        assert "waiting for first data" in panel.text()


async def test_gpu_gauges_have_a_chart_by_time(show) -> None:
    async with show("train", (120, 40)) as panel:
        await opened(panel)
        await panel.press("end")
        told = panel.text()
        assert "gpu percent by GPU" in told and "by time" in told
        await panel.press("p")
        assert "no run to compare" in panel.app.message[0]


async def test_the_chart_has_a_plain_form(show) -> None:
    async with show("train", (80, 24), ascii_only=True) as panel:
        await opened(panel)
        assert all(line.isascii() for line in panel.lines())
