"""The benchmark of the charts draws what it says that it draws; no test asserts a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def charts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import charts

    monkeypatch.setattr(charts, "FRAMES", 2)
    yield charts
    for name in ("charts", "measuring"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("variant", ["ours", "textual_plotext"])
async def test_each_variant_draws_its_frames(charts, variant) -> None:
    drawn = []
    frames = charts.frames

    async def noted(pilot, frame) -> float:
        spent = await frames(pilot, frame)
        drawn.append(str(pilot.app.export_screenshot()))
        return spent

    charts.frames = noted
    await getattr(charts, variant)(charts.POINTS[variant])
    (picture,) = drawn
    assert any("⠀" < sign <= "⣿" for sign in picture), "there is no curve in it"
