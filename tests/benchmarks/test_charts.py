"""The benchmark of the charts draws what it says that it draws; no test asserts a time."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("variant", ["ours", "textual_plotext"])
async def test_each_variant_draws_its_frames(benchmark, monkeypatch, variant) -> None:
    charts, drawn = benchmark("charts"), []
    frames = charts.frames

    async def noted(pilot, frame) -> float:
        spent = await frames(pilot, frame)
        drawn.append(str(pilot.app.export_screenshot()))
        return spent

    monkeypatch.setattr(charts, "FRAMES", 2)
    monkeypatch.setattr(charts, "frames", noted)
    await getattr(charts, variant)(charts.POINTS[variant])
    (picture,) = drawn
    assert any("⠀" < sign <= "⣿" for sign in picture), "there is no curve in it"
