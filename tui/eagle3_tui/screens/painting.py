"""A screen that opens is painted once.

Textual (8.2) paints a new screen with each layout of its opening, three or four times before anybody can see what
changes in between: its own size, scrollbars, answers that are there already. That is half of what a key costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

    def _on_timer_update(self) -> None:
        if not self._painted and self.is_current and self.size:
            self._painted = True
            if self._layout_required:  # which paints all that there is
                self._repaint_required = False
        super()._on_timer_update()

    def _compositor_refresh(self) -> None:
        if self._painted:
            super()._compositor_refresh()
