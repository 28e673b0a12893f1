"""Row 12: four live charts with axes, a new point on each with every frame, against textual-plotext.

`charts.py VARIANT` measures one variant, without a name all of them. It runs in the panel's environment.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from measuring import interleaved, medians, row

SIZE = (200, 50)
"""Four charts of 100x25."""
FRAMES = 30
POINTS = {"ours": 2000, "ours_long": 1_000_000, "textual_plotext": 2000}


def results() -> dict[str, dict[str, Any]]:
    runs = interleaved(Path(__file__), tuple(POINTS))
    ours, long, peer = (medians(runs[variant]) for variant in POINTS)
    ratio = {
        "time": peer["cpu_seconds"] / ours["cpu_seconds"],
        "at_most_history": long["cpu_seconds"] / ours["cpu_seconds"],
    }
    what = f"four live charts of 100x25, CPU of {FRAMES} frames; history: a million points against 2000"
    both = {"two_thousand": ours, "million": long}
    return {"12": row(what, both, peer, ratio, {"time": 12.0, "at_most_history": 1.2}, runs)}


def value(step: float) -> float:
    return 1.6 + 7.4 * math.exp(-step / 260) + 0.05 * math.sin(step / 3)


def our_app() -> Any:
    from textual.app import App

    from eagle3_tui.theme import Look
    from eagle3_tui.widgets.charts import Charts

    class Drawing(App[None]):
        CSS = "Charts { width: 100%; height: 100%; }"
        look = Look()

        def compose(self) -> Any:
            yield Charts()

    return Drawing()


def peer_app() -> Any:
    from textual.app import App
    from textual.containers import Grid
    from textual_plotext import PlotextPlot

    class Charts(App[None]):
        CSS = "Grid { grid-size: 2 2; } PlotextPlot { border: solid white; }"

        def compose(self) -> Any:
            with Grid():
                for _ in range(4):
                    yield PlotextPlot()

    return Charts()


async def ours(points: int) -> float:
    """What control keeps of the history is what a tile draws."""
    from eagle3_backend.control.fold import RunFold
    from eagle3_tui.widgets.charts import Charts, Curve

    fold = RunFold(("loss", (float(step), value(step))) for step in range(points))
    app = our_app()
    async with app.run_test(size=SIZE) as pilot:
        charts = app.query_one(Charts)

        def frame(number: int) -> None:
            fold._point("loss", (float(points + number), value(points + number)))
            drawn = tuple(fold.series["loss"])
            charts.show(tuple(Curve(f"loss {tile}", "loss", drawn) for tile in range(4)))

        return await frames(pilot, frame)


async def textual_plotext(points: int) -> float:
    from textual_plotext import PlotextPlot

    xs = [float(step) for step in range(points)]
    ys = [value(step) for step in xs]
    app = peer_app()
    async with app.run_test(size=SIZE) as pilot:
        charts = list(app.query(PlotextPlot))

        def frame(number: int) -> None:
            xs.append(float(points + number))
            ys.append(value(points + number))
            for chart in charts:
                chart.plt.clear_data()
                chart.plt.plot(xs, ys, marker="braille")
                chart.refresh()

        return await frames(pilot, frame)


async def frames(pilot: Any, frame: Any) -> float:
    """CPU seconds of the frames, without those of as many that draw nothing."""
    frame(0)
    await pilot.pause()
    spent = []
    for draw in (frame, lambda number: None):
        begun = time.process_time()
        for number in range(1, FRAMES + 1):
            draw(number)
            await pilot.pause(0.02)
        spent.append(time.process_time() - begun)
    return spent[0] - spent[1]


def main(variants: list[str]) -> None:
    if not variants:
        print(json.dumps(results(), indent=1))
        return
    measure = textual_plotext if variants[0] == "textual_plotext" else ours
    print(json.dumps({"cpu_seconds": asyncio.run(measure(POINTS[variants[0]]))}))


if __name__ == "__main__":
    main(sys.argv[1:])
