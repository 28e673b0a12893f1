"""The log on the line API: only the visible lines are styled, and a bounded part of the log is held."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from rich.style import Style
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from eagle3_backend.control.commands import ReadLog
from eagle3_backend.control.snapshot import LogView
from eagle3_backend.runs.loglines import MAX_CHARACTERS, LogLine, progress_of
from eagle3_tui.logwindow import LogWindow
from eagle3_tui.text import clean, count, shorten, size
from eagle3_tui.widgets.logtext import cells_of, highlighted, loudness, most_cells, styled

if TYPE_CHECKING:
    from eagle3_backend.runs.logreader import LogBlock
    from eagle3_tui.app import Panel

STRIPS = 128
"""Drawn lines that are kept."""


class LogPane(ScrollView, can_focus=True):
    """Draws one stage's log: follows its end, wraps, and reads earlier parts as they are scrolled to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.part = LogView()
        self.window = LogWindow()
        self.follow = True
        self.wrap = False
        self.colours = True
        """Whether a line keeps the colours that it came with."""
        self.found: re.Pattern[str] | None = None
        self.chosen: tuple[int, int] | None = None
        """Offsets of the first and the last line that are selected."""
        self._asked: set[str] = set()
        self._widest = 0
        self._tops: list[int] = []
        self._wrapped_to = 0
        self._strips: dict[tuple[Any, ...], Strip] = {}
        self._words = ""
        self._aim: int | None = None

    @property
    def panel(self) -> Panel:
        return cast("Panel", self.app)

    @property
    def room(self) -> Size:
        """Cells in which lines are drawn."""
        return self.scrollable_content_region.size

    def on_mount(self) -> None:
        self._retitle()

    def show(self, part: LogView) -> None:
        """Take the newest lines."""
        before = self.part
        if part is before or part == before:
            return
        self.part = part
        if (part.stage, part.attempt) != (before.stage, before.attempt):
            self.window.clear()
            self.window.generation = part.generation
            self.chosen, self._aim, self._widest = None, None, 0
            self.follow = True
        known = self.window.end if part.generation == self.window.generation else 0
        gone = self.window.take_tail(part, stay=not self.follow)
        self._after_change((line for line in part.lines if line.end > known), gone)

    def _after_change(self, fresh: Iterable[LogLine], gone: int = 0, added: int = 0) -> None:
        """``fresh`` lines came, some left or came at the front: keep what is read in its place, and draw."""
        rows = self._rows_of(gone, self._tops) if gone else 0
        self._measure(fresh)
        rows = -rows if gone else self._rows_of(added, self._tops)
        if self.follow:
            self._to_end()
        elif rows:
            top = max(0, self.scroll_offset.y + rows)
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._retitle()
        self.refresh()

    def _measure(self, fresh: Iterable[LogLine]) -> None:
        width = max(1, self.room.width)
        lines = self.window.lines
        if self.wrap:
            heights = (1 if most_cells(line.text) <= width else -(-cells_of(line.text) // width) or 1 for line in lines)
            self._tops = [0, *accumulate(heights)]
            self._wrapped_to = width
            self._resize_content(Size(width, self._tops[-1]))
        else:
            self._tops = []
            # It never shrinks: what left may have been the widest, but nobody waits for a measure of them all. Nor for
            # one without colour codes: a little more to scroll sideways costs nothing.
            for line in fresh:
                most = most_cells(line.text)
                if most > self._widest:
                    plain = most == len(line.text) <= MAX_CHARACTERS
                    self._widest = max(self._widest, most if plain else cells_of(line.text))
            self._resize_content(Size(self._widest, len(lines)))

    def _resize_content(self, size: Size) -> None:
        """Another size of the whole picture. Lines that come while there is a scrollbar need no layout of the screen,
        which Textual would do for each change of ``virtual_size``."""
        room = self.container_size.height
        if room and self.show_vertical_scrollbar and size.height > room:
            self.set_reactive(ScrollView.virtual_size, size)
            self._scroll_update(size)
        else:
            self.virtual_size = size

    @staticmethod
    def _rows_of(lines: int, tops: list[int]) -> int:
        return tops[min(lines, len(tops) - 1)] if tops else lines

    def line_at(self, row: int) -> int:
        """The line that is drawn in this row of the whole picture."""
        return bisect_right(self._tops, row) - 1 if self._tops else row

    def row_of(self, line: int) -> int:
        return self._rows_of(line, self._tops)

    def _facts(self) -> list[str]:
        look, part = self.panel.look, self.part
        facts = ["Log", clean(part.stage, 32), f"attempt {part.attempt}" if part.attempt else ""]
        facts.append(size(part.bytes) if part.bytes else "")
        if self.follow:
            facts.append(f"follow {look.glyph('down')}")
        else:
            at = self.line_at(self.scroll_offset.y)
            here = self.window.lines[at].offset if at < len(self.window.lines) else 0
            facts.append(f"at {100 * max(0, here) / part.bytes:.0f}%, f follows" if part.bytes else "f follows")
        facts.append("" if self.colours else "no colours")
        bar = progress_of(part.lines[-1].text) if part.lines else None
        if bar is not None and self.follow:
            facts.append(f"{clean(bar.label, 20)} {count(bar.done)}/{count(bar.total)}".strip())
        return facts

    def _retitle(self) -> None:
        if not self.size:
            return
        look = self.panel.look
        facts = [*self._facts(), "loading" if self._asked else ""]
        words = look.remote(shorten(look.joined(facts), max(1, self.outer_size.width - 6), look.glyph("more")))
        if self.border_title is None or words != self._words:
            self._words = words
            self.border_title = Text(words)  # a Text is never read as markup

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        at_end = new_value >= self.max_scroll_y and self.window.last
        if at_end != self.follow and self.is_attached:
            self.follow = at_end
        if self.is_attached and not self.follow:
            self._retitle()
            self.call_later(self._load_more)

    def _load_more(self) -> None:
        """Read on where the reader comes near an end of what is held."""
        window, top, height = self.window, self.scroll_offset.y, self.room.height
        if not self.part.stage or not window.lines:
            return
        if top < height and not window.first and window.lines[0].kind != "skipped":
            self.read("before", window.start)
        elif not window.last and top + 2 * height > self.virtual_size.height:
            self.read("after", window.end)

    def read(self, what: str, at: int | None, *, fetch: bool = False, rule: LogLine | None = None) -> None:
        """Ask control for a block; ``what`` is before, after, replace or fill."""
        if what in self._asked:
            return
        self._asked.add(what)
        part, match = self.part, self.filter_text
        ahead = what == "after" or (what == "replace" and at is not None)
        command = ReadLog(part.stage, part.attempt, at, ahead=ahead, match=match, fetch=fetch)

        def come(block: LogBlock) -> None:
            self._asked.discard(what)
            if (part.stage, part.attempt, match) == (self.part.stage, self.part.attempt, self.filter_text):
                self._place(what, block, rule)

        def refused(problem: BaseException) -> None:
            self._asked.discard(what)
            self.panel.notice(words_of(problem), "warn")
            self._retitle()

        self.panel.inquire(command, come, refused)
        self._retitle()

    @property
    def filter_text(self) -> str:
        return ""

    def _place(self, what: str, block: LogBlock, rule: LogLine | None) -> None:
        window = self.window
        if what == "before":
            before = window.start
            self._after_change(block.lines, added=window.put_before(block))
            if window.start < before:
                # Few lines may have come of much: go on until there is enough to scroll in.
                self.call_later(self._load_more)
        elif what == "after":
            self._after_change(block.lines, gone=window.put_after(block))
        elif what == "fill" and rule is not None:
            at = window.lines.index(rule) if rule in window.lines else 0
            above = at <= self.line_at(self.scroll_offset.y)
            added = window.fill(rule, block)
            self._after_change(block.lines, added=max(0, added) if above else 0)
        elif what == "replace":
            window.replace(block)
            self._widest = 0
            self._after_change(block.lines)
            if self._aim is not None:
                aim, self._aim = self._aim, None
                self.go_to(aim)
            self.call_later(self._load_more)

    def go_to(self, offset: int) -> None:
        """Bring the line at this byte into view, wherever in the log it is."""
        index = self.window.index_of(offset)
        self.follow = False
        if index is None:
            self._aim = offset
            self.read("replace", offset)
            return
        row = self.row_of(index)
        top = self.scroll_offset.y
        if not top <= row < top + self.room.height:
            self.scroll_to(y=max(0, row - self.room.height // 3), animate=False, immediate=True, force=True)
        self._retitle()
        self.refresh()
        self.call_later(self._load_more)

    def on_resize(self) -> None:
        if self.wrap and self._wrapped_to != self.room.width:
            self._measure(())
        self._retitle()
        if self.follow:
            self._to_end()

    def _to_end(self) -> None:
        # Forced: the scrollbar that would allow it comes with the next layout only.
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width = self.room.width
        base = self.visual_style.rich_style
        x, top = self.scroll_offset
        index = self.line_at(y + top)
        lines = self.window.lines
        if not lines and y == 0:
            return Strip(self.panel.look.line((self._why_empty(), "dim")).render(self.app.console)).apply_style(base)
        if index >= len(lines):
            return Strip.blank(width, base)
        line = lines[index]
        if line.kind in ("skipped", "restarted"):
            return Strip(self._rule(line, width).render(self.app.console)).apply_style(base).extend_cell_length(width)
        strip = self._drawn(line, base)
        if self.wrap:
            x = (y + top - self.row_of(index)) * width
        return strip.crop_extend(x, x + width, base)

    def _drawn(self, line: LogLine, base: Style) -> Strip:
        """The whole line, however long."""
        selected = self.chosen is not None and self.chosen[0] <= line.offset <= self.chosen[1]
        key = (line.text, line.kind == "old", selected, self.found, self.colours, base)
        strip = self._strips.get(key)
        if strip is None:
            look = self.panel.look
            if role := "dim" if line.kind == "old" else loudness(line.text):
                base += look.style(role)
            if selected:
                base += Style(reverse=True)
            text = styled(line.text, look.ascii_only)
            text = highlighted(text if self.colours else Text(text.plain, end=""), self.found, look.style("found"))
            strip = Strip(text.render(self.app.console)).apply_style(base)
            if len(self._strips) >= STRIPS:
                self._strips.clear()
            self._strips[key] = strip
        return strip

    def _why_empty(self) -> str:
        if self.filter_text:
            return "looking" if self._asked else "no line matches"
        return "no output yet" if self.part.stage else "no log yet"

    def _rule(self, line: LogLine, width: int) -> Text:
        look = self.panel.look
        words = "log restarted" if line.kind == "restarted" else f"skipped {size(line.end - line.offset)}, press L"
        side = look.glyph("rule") * max(2, (width - len(words) - 2) // 2)
        return look.line((side, "line"), (f" {words} ", "warn"), (side, "line"))


def words_of(problem: BaseException) -> str:
    """A refusal in one line."""
    findings = getattr(problem, "findings", ())
    return clean(findings[0].message if findings else problem)
