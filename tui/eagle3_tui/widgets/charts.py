"""Curves of whatever series are there: four braille tiles where there is room, sparklines where there is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from eagle3_tui.drawing import Point, bounds, curve, spark
from eagle3_tui.text import clean, count, fit, number, shorten
from eagle3_tui.theme import Look, Piece
from eagle3_tui.widgets.picture import Picture

Series = Mapping[str, tuple[Point, ...]]

TILES = 4
SPARK_POINTS = 400
"""A sparkline looks at this many newest points."""


@dataclass(frozen=True)
class Measure:
    """A quantity worth a tile: the stage it belongs to, its titles, and the series that carry it, best first."""

    stage: str
    title: str
    short: str
    names: tuple[str, ...]


MEASURES = (
    Measure("train", "loss", "loss", ("train/loss", "loss")),
    Measure("train", "acceptance length", "acc-len", ("train/accept_len", "accept_len")),
    Measure("train", "held-out acceptance", "held-out", ("eval/accept_len",)),
    Measure("generate", "tok/s", "tok/s", ("generate/tokens_per_second", "train/tokens_per_second")),
    Measure("train", "grad norm", "grad", ("train/gradient_norm", "train/grad_norm")),
    Measure("bench", "engine's acceptance length", "engine", ("acceptance_length",)),
)
"""In the order in which they get a tile."""


@dataclass(frozen=True)
class Curve:
    """What one tile draws."""

    title: str
    short: str
    points: tuple[Point, ...] = ()
    awaits: str = ""
    """The stage that will measure it, while it has not begun."""

    @property
    def last(self) -> str:
        return number(self.points[-1][1]) if self.points else ""


def curves(series: Series, stage: str = "") -> tuple[Curve, ...]:
    """The curves to show: measures of the stage at work, other measures, other series, measures still awaited."""
    found: list[tuple[bool, Curve]] = []
    awaited: list[Curve] = []
    for measure in MEASURES:
        name = next((name for name in measure.names if series.get(name)), None)
        if name is None:
            awaited.append(Curve(measure.title, measure.short, awaits="" if measure.stage == stage else measure.stage))
        else:
            found.append((measure.stage != stage, Curve(measure.title, measure.short, series[name])))
    shown = [curve for _, curve in sorted(found, key=lambda entry: entry[0])]
    known = {name.partition("/")[0] for measure in MEASURES for name in measure.names}
    others = (name for name, points in series.items() if name.partition("/")[0] not in known and len(points) > 1)
    shown += [
        Curve(clean(name, 40), clean(name.rpartition("/")[2], 12), series[name])
        for name in islice(others, max(0, TILES - len(shown)))
    ]
    return (*shown, *awaited)[:TILES]


def ordered_names(series: Series, stage: str = "") -> list[str]:
    """All series, those of the tiles first and in their order."""
    measured = sorted(MEASURES, key=lambda measure: measure.stage != stage)
    first = [name for measure in measured for name in measure.names if series.get(name)]
    return [*dict.fromkeys(first), *(name for name in series if name not in first)]


class Charts(Picture):
    """Two by two tiles: each a frame with its title, and a curve with the bounds of its values and the steps below.

    One widget for all four: what a repaint costs is counted in the lines of widgets, not in what stands in them.
    """

    def strips(self, width: int, height: int, base: Style) -> list[Strip]:
        shown: tuple[Curve, ...] = self.part or ()
        shown = (*shown, *[Curve("", "")] * TILES)[:TILES]
        ink = {role: base + self.look.style(role) for role in ("dim", "line", "accent")}
        left, upper = width // 2, height // 2
        strips: list[Strip] = []
        for pair, rows in ((shown[:2], upper), (shown[2:], height - upper)):
            halves = (
                self._framed(one, cells, rows, ink) for one, cells in zip(pair, (left, width - left), strict=True)
            )
            strips += [Strip([*one, *other], width) for one, other in zip(*halves, strict=True)]
        return strips

    def _framed(self, shown: Curve, width: int, height: int, ink: dict[str, Style]) -> list[list[Segment]]:
        """A tile in its frame: lists of segments that are ``width`` cells together."""
        look, line = self.look, ink["line"]
        if width < 12 or height < 3:
            return [[Segment(" " * width, line)] for _ in range(height)]
        flat, side, corners = look.glyph("rule"), look.glyph("side"), look.glyph("corners")
        title = shorten(look.remote(f"{shown.title} {shown.last}".strip()), width - 6, look.glyph("more"))
        named = [Segment(" ", line), Segment(title, ink["dim"]), Segment(" ", line)] if title else []
        rest = width - 3 - sum(segment.cell_length for segment in named)
        edge, end = Segment(f"{side} ", line), Segment(f" {side}", line)
        inner = self._inner(shown, width - 4, height - 2, ink)
        return [
            [Segment(corners[0] + flat, line), *named, Segment(flat * rest + corners[1], line)],
            *([edge, *row, end] for row in inner),
            [Segment(corners[2] + flat * (width - 2) + corners[3], line)],
        ]

    def _inner(self, shown: Curve, width: int, height: int, ink: dict[str, Style]) -> list[list[Segment]]:
        look = self.look
        limits = bounds(shown.points)
        if limits is None:
            words = fit(f"waiting for {shown.awaits or 'first data'}".center(width), width)
            blank = [Segment(" " * width, ink["dim"])]
            return [[Segment(words, ink["dim"])] if row == (height - 1) // 2 else blank for row in range(height)]
        low, high = number(limits[0]), number(limits[1])
        left = min(max(len(low), len(high)), width // 2)
        rows = height - (height > 3)
        axis = Segment(look.glyph("axis"), ink["line"])
        drawn = []
        for y, row in enumerate(curve(shown.points, width - left - 1, rows, look.ascii_only, limits)):
            label = high if y == 0 else low if y == rows - 1 else ""
            drawn.append([Segment(label.rjust(left), ink["dim"]), axis, Segment(row, ink["accent"])])
        if rows < height:
            drawn.append(self._x_axis(shown.points, left, width, ink))
        return drawn

    def _x_axis(self, points: tuple[Point, ...], left: int, width: int, ink: dict[str, Style]) -> list[Segment]:
        first, last = count(points[0][0]), count(points[-1][0])
        gap = width - left - 1 - len(first) - len(last)
        words = first + " " * gap + last if gap > 0 else fit(last, width - left - 1)
        return [Segment(" " * left + self.look.glyph("corner"), ink["line"]), Segment(words, ink["dim"])]


def spark_line(series: Series, stage: str, look: Look, width: int) -> Text:
    """The curves that have points on one line: short title, last value, sparkline; as many as fit."""
    shown = [one for one in curves(series, stage) if one.points]
    if not shown:
        return look.line(("loss and acceptance length: waiting for first data", "dim"))
    fixed = [len(f"{one.short} {one.last} ") for one in shown]
    while shown and sum(fixed) + (len(shown) - 1) * 2 + 4 * len(shown) > width:
        shown.pop()
        fixed.pop()
    room = min(16, (width - sum(fixed) - (len(shown) - 1) * 2) // len(shown)) if shown else 0
    pieces: list[Piece] = []
    for one in shown:
        values = [value for _, value in one.points[-SPARK_POINTS:]]
        pieces += [
            "  " if pieces else "",
            (f"{look.remote(one.short)} ", "dim"),
            (f"{one.last} ", "text bold"),
            (spark(values, room, look.ascii_only), "accent"),
        ]
    return look.line(*pieces)
