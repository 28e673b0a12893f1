"""A screen that opens is styled, laid out and painted once.

Textual (8.2) does each several times before anybody can see what changes in between: all that was styled as it was
mounted is styled again as the screen resumes, each layout for a size brings an event of that size which lays out again
(the screens underneath too), and each layout is painted. That is more than half of what a key costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.events import ScreenResume
from textual.geometry import Size
from textual.screen import Screen

if TYPE_CHECKING:
    Base = Screen[Any]
else:  # style sheets follow the first base that is a widget, and that has to be Textual's
    Base = object


class PaintedOnce(Base):
    """Stands before a `Screen` among the bases.

    The first picture waits for the first beat of the screen's timer, when all that was posted is done.
    """

    _painted = False

    def _on_screen_resume(self, event: ScreenResume) -> None:
        if not self._painted:
            event.refresh_styles = False

    def _screen_resized(self, size: Size) -> None:
        if self._compositor.size != size:
            super()._screen_resized(size)

    def _on_timer_update(self) -> None:
        if not self._painted and self.is_current and self.size:
            self._painted = True
            if self._layout_required:  # which paints all that there is
                self._repaint_required = False
        super()._on_timer_update()

    def _compositor_refresh(self) -> None:
        if self._painted:
            super()._compositor_refresh()
