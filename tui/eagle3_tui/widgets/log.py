"""The log tail: only the visible lines are styled, remote text stays text, following stops on scrolling up."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from rich.ansi import AnsiDecoder
from rich.style import Style
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from eagle3_backend.control.snapshot import LogView
from eagle3_tui.bindings import bindings
from eagle3_tui.text import LINE_LIMIT, clean, cut, last_frame, shorten, size, split_colours, visible

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

_LOUD = re.compile(r"\b(?:(ERROR|CRITICAL|FATAL|Traceback)|(WARN(?:ING)?))\b")
_PLAIN = Style(conceal=False, blink=False, blink2=False)


def styled(line: str, ascii_only: bool = False) -> Text:
    """A raw log line as text with its colours; nothing else of it reaches the terminal as a command."""
    return _styled(cut(last_frame(line)), ascii_only)


@lru_cache(maxsize=1024)
def _styled(line: str, ascii_only: bool) -> Text:
    if "\x1b" not in line:
        text = Text(visible(line), end="")
    else:
        parts = [(codes, visible(part)) for codes, part in split_colours(line)]
        text = AnsiDecoder().decode_line("".join(f"\x1b[{codes}m{part}" if codes else part for codes, part in parts))
        text.stylize(_PLAIN)
    if ascii_only:
        text.plain = text.plain.encode("ascii", "replace").decode()
    return text


def loudness(line: str) -> str:
    """The role of a line by the level it names, or an empty string."""
    found = _LOUD.search(line[:200])
    return "" if found is None else "bad" if found.group(1) else "warn"


class LogTail(ScrollView, can_focus=True):
    """Shows `LogView`s of one stage at a time."""

    BINDINGS = bindings("log", "list", "scroll")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.part = LogView()
        self.follow = True

    @property
    def panel(self) -> Panel:
        return cast("Panel", self.app)

    def on_mount(self) -> None:
        self._retitle()

    def show(self, part: LogView) -> None:
        before = self.part
        if part is before or part == before:
            return
        self.part = part
        same = (part.stage, part.attempt) == (before.stage, before.attempt)
        if not same:
            self.follow = True
        self._measure()
        if self.follow:
            self._to_end()
        elif same and (gone := _dropped(before.lines, part.lines)):
            self.scroll_to(y=max(0, self.scroll_offset.y - gone), animate=False, immediate=True)
        self._retitle()
        self.refresh()

    def _measure(self) -> None:
        # Twice the length bounds the cells; measuring every line exactly would cost more than drawing them.
        widest = max(
            (min(len(line), LINE_LIMIT + 12) * (1 if line.isascii() else 2) for line in self.part.lines), default=0
        )
        self.virtual_size = Size(widest, len(self.part.lines))

    def _retitle(self) -> None:
        if not self.size:
            return
        look, part = self.panel.look, self.part
        facts = ["Log", clean(part.stage, 32), f"attempt {part.attempt}" if part.attempt else ""]
        facts.append(size(part.bytes) if part.bytes else "")
        facts.append(f"follow {look.glyph('down')}" if self.follow else "f follows")
        words = look.remote(shorten(look.joined(facts), max(1, self.outer_size.width - 6), look.glyph("more")))
        if self.border_title is None or Text(words).plain != self._words:
            self._words = words
            self.border_title = Text(words)  # a Text is never read as markup

    _words = ""

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        at_end = new_value >= self.max_scroll_y
        if at_end != self.follow and self.is_attached:
            self.follow = at_end
            self._retitle()

    def on_resize(self) -> None:
        self._retitle()
        if self.follow:
            self._to_end()

    def _to_end(self) -> None:
        # Forced: the scrollbar that would allow it comes with the next layout only.
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        base = self.visual_style.rich_style
        x, top = self.scroll_offset
        index = y + top
        if not self.part.lines and y == 0:
            words = "no output yet" if self.part.stage else "no log yet"
            return Strip(self.panel.look.line((words, "dim")).render(self.app.console)).apply_style(base)
        if index >= len(self.part.lines):
            return Strip.blank(width, base)
        line = self.part.lines[index]
        if role := loudness(line):
            base += self.panel.look.style(role)
        text = styled(line, self.panel.look.ascii_only)
        strip = Strip(text.render(self.app.console)).apply_style(base)
        return strip.crop_extend(x, x + width, base)

    def action_follow(self) -> None:
        """Follow the end, or stay where the log is now."""
        self.follow = not self.follow
        if self.follow:
            self._to_end()
        self._retitle()

    def action_up(self) -> None:
        self.scroll_up(animate=False)

    def action_down(self) -> None:
        self.scroll_down(animate=False)

    def action_left(self) -> None:
        self.scroll_to(x=self.scroll_offset.x - 8, animate=False)

    def action_right(self) -> None:
        self.scroll_to(x=self.scroll_offset.x + 8, animate=False)

    def action_page_back(self) -> None:
        self.scroll_page_up(animate=False)

    def action_page_on(self) -> None:
        self.scroll_page_down(animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.follow = True
        self._to_end()
        self._retitle()


def _dropped(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """How many lines left at the front. Control hands the same string objects on, so identity finds the place."""
    if not after:
        return 0
    first = after[0]
    return next((index for index, line in enumerate(before) if line is first), 0)
