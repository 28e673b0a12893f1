"""One big chart with axes, and its legend. Imported when the first chart is opened: plotext is not small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rich.color import Color
from rich.text import Text
from textual.app import RenderResult
from textual_plotext import PlotextPlot

from eagle3_tui.chartdata import Drawn, stretches, value_at
from eagle3_tui.text import clean, count, number, shorten, span
from eagle3_tui.theme import Look
from eagle3_tui.widgets.picture import Picture

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

ROLES = ("accent", "good", "warn", "active", "bad", "dim")
"""Colours of the curves, in their order."""

_ASCII = str.maketrans("─│┌┐└┘├┤┬┴┼", "-|+++++++++")


@dataclass(frozen=True)
class View:
    """What is drawn: the curves between ``low`` and ``high``, and where the cursor stands."""

    title: str = ""
    curves: tuple[Drawn, ...] = ()
    low: float = 0.0
    high: float = 1.0
    cursor: float | None = None
    log: bool = False
    x_name: str = "step"

    def x_words(self, x: float) -> str:
        return span(x) if self.x_name == "time" else count(x)


class Zoomed(PlotextPlot, can_focus=True):
    """Builds the chart again only when its view, its size or the theme changed."""

    def __init__(self) -> None:
        super().__init__(classes="panel")
        self.view = View()
        self._built: tuple[object, ...] = ()
        self._text = Text("")

    @property
    def look(self) -> Look:
        return cast("Panel", self.app).look

    def show(self, view: View) -> None:
        if view != self.view:
            self.view = view
            self._retitle()
            self.refresh()

    def on_resize(self) -> None:
        self._retitle()

    def _retitle(self) -> None:
        room = max(1, self.outer_size.width - 6)
        words = self.look.remote(shorten(clean(self.view.title, 200), room, self.look.glyph("more")))
        self.border_title = Text(words)  # a Text is never read as markup

    def render(self) -> RenderResult:
        wanted = (self.view, self.size, self.look)
        if wanted != self._built and self.size.width > 8 and self.size.height > 4:
            self._built = wanted
            self._text = self._build()
        return self._text

    def _build(self) -> Text:
        view, look, plot = self.view, self.look, self.plt
        plot.clear_figure()
        plot.plotsize(self.size.width, self.size.height)
        plot._set_size(self.size.width, self.size.height)
        background = _rgb(look.palette.background)
        plot.canvas_color(background)
        plot.axes_color(background)
        plot.ticks_color(_rgb(look.palette.dim))
        plot.xaxes(True, False)
        plot.yaxes(True, False)
        if view.log:
            plot.yscale("log")
        drawn = False
        for index, curve in enumerate(view.curves):
            colour = _rgb(getattr(look.palette, ROLES[index % len(ROLES)]))
            for part in stretches(curve.points, 2 * self.size.width, log=view.log):
                xs, ys = [x for x, _ in part], [y for _, y in part]
                plot.plot(xs, ys, marker="*" if look.ascii_only else "braille", color=colour)
                drawn = True
        if not drawn:
            words = "nothing above zero on this axis" if view.log and view.curves else "waiting for first data"
            return look.line((f" {words}", "dim"))
        if view.high > view.low:
            plot.xlim(view.low, view.high)
            places = [view.low + (view.high - view.low) * step / 4 for step in range(5)]
            plot.xticks(places, [view.x_words(place) for place in places])
        if view.cursor is not None:
            plot.vline(view.cursor, _rgb(look.palette.line))
        text = Text.from_ansi(plot.build())
        if look.ascii_only:
            text.plain = text.plain.translate(_ASCII).encode("ascii", "replace").decode()
        return text


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = Color.parse(colour).get_truecolor()
    return red, green, blue


class Legend(Picture):
    """One row a curve: its colour, its name, and its value where the cursor stands or at the end."""

    def lines(self, width: int, height: int) -> list[Text]:
        view: View = self.part or View()
        lines = []
        for index, curve in enumerate(view.curves[:height]):
            at = value_at(curve.points, view.cursor if view.cursor is not None else view.high)
            told = f"{number(at[1])} at {view.x_words(at[0])}" if at is not None else "no data here"
            name = self.look.remote(clean(curve.label, 60))
            lines.append(
                self.look.line(
                    (f" {self.look.glyph('stop')} ", ROLES[index % len(ROLES)]),
                    (shorten(name, max(8, width - 30)), "text"),
                    (f"  {told}", "dim"),
                )
            )
        return lines
