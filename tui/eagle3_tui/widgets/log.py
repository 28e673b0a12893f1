"""What can be done in a log: follow, search, filter, wrap, jump to a time or to an error, load, select, copy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eagle3_backend.control.commands import FindLogTime, Logs, ReadLog
from eagle3_backend.findings import FindingError
from eagle3_tui.bindings import bindings
from eagle3_tui.text import clean, size, visible
from eagle3_tui.widgets.logpane import LogPane, words_of
from eagle3_tui.widgets.logtext import plain

if TYPE_CHECKING:
    from eagle3_backend.runs.logreader import LogBlock, Matcher


WHOLE_BYTES = 64 * 1024
"""What is shown of one line at most."""

_CUT = re.compile(r"…\+\d+$")


class LogTail(LogPane):
    """The keys of a log."""

    BINDINGS = bindings("log", "sideways", "list", "scroll")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._filter: Matcher | None = None
        self._filter_text = ""
        self._search: Matcher | None = None
        self._search_text = ""
        self._hit: int | None = None
        self._anchor = self._cursor = 0

    @property
    def filter_text(self) -> str:
        return self._filter_text

    def _facts(self) -> list[str]:
        facts = super()._facts()
        if self.chosen is not None:
            facts.append(f"{len(self._chosen_lines())} lines selected")
        if self._filter_text:
            more = "" if self.window.first else "+"
            facts += [f"only /{self._filter_text}/", f"{len(self.window.lines)}{more} hits"]
        if self._search_text:
            facts.append(f"/{self._search_text}")
        return facts

    # Moving

    def action_follow(self) -> None:
        """Follow the end, or stay where the log is now."""
        if self.follow:
            self.follow = False
            self._retitle()
        else:
            self.action_last()

    def action_up(self) -> None:
        self._step(-1)

    def action_down(self) -> None:
        self._step(1)

    def _step(self, lines: int) -> None:
        if self.chosen is not None:
            self._extend_choice(lines)
        else:
            self.scroll_relative(y=lines, animate=False)

    def action_left(self) -> None:
        self.scroll_to(x=self.scroll_offset.x - 8, animate=False)

    def action_right(self) -> None:
        self.scroll_to(x=self.scroll_offset.x + 8, animate=False)

    def action_page_back(self) -> None:
        self.scroll_page_up(animate=False)

    def action_page_on(self) -> None:
        self.scroll_page_down(animate=False)

    def action_first(self) -> None:
        """To the beginning of the log, which may be far before what is held."""
        if self.window.first or not self.window.lines:
            self.scroll_home(animate=False)
            return
        self.follow = False
        self._aim = 0
        self.read("replace", 0)

    def action_last(self) -> None:
        if not self.window.last:
            self._reload_tail()
        self.follow = True
        self._to_end()
        self._retitle()

    def _reload_tail(self) -> None:
        """Back to the newest lines: those of the snapshot, or under a filter the newest that match."""
        self.window.clear()
        self._widest = 0
        if self._filter is not None:
            self.read("replace", None)
            return
        gone = self.window.take_tail(self.part, stay=False)
        self._after_change(self.part.lines, gone)

    def action_wrap(self) -> None:
        index = self.line_at(self.scroll_offset.y)
        self.wrap = not self.wrap
        self._measure(())
        self.scroll_to(x=0, animate=False, immediate=True)
        if self.follow:
            self._to_end()
        else:
            self.scroll_to(y=self.row_of(index), animate=False, immediate=True, force=True)
        self.refresh()

    def action_colours(self) -> None:
        """Keep the colours of the lines, or show them as plain text."""
        self.colours = not self.colours
        self._retitle()
        self.refresh()

    # Search and filter

    def action_search(self) -> None:
        self.panel.ask_line("/", self._search_text, self._begin_search, "search in the log: a regular expression")

    def _begin_search(self, text: str) -> None:
        self._search_text = text
        try:
            self._search = _matcher(text) if text else None
        except FindingError as problem:
            self._search = None
            self.panel.notice(words_of(problem), "bad")
        self.found = self._search.pattern if self._search else None
        self._hit = None
        self.refresh()
        if self._search is not None:
            self._look_for(self._search, text, ahead=False, here=True)
        self._retitle()

    def action_find_next(self) -> None:
        if self._search is not None:
            self._look_for(self._search, self._search_text, ahead=True)

    def action_find_previous(self) -> None:
        if self._search is not None:
            self._look_for(self._search, self._search_text, ahead=False)

    def action_next_loud(self) -> None:
        self._look_for_loud(ahead=True)

    def action_previous_loud(self) -> None:
        self._look_for_loud(ahead=False)

    def _look_for_loud(self, *, ahead: bool) -> None:
        from eagle3_backend.runs.logreader import LOUD

        self._look_for(_matcher(LOUD), LOUD, ahead=ahead)

    def _look_for(self, match: Matcher, text: str, *, ahead: bool, here: bool = False) -> None:
        """To the next or previous line that matches: among the lines at hand, else anywhere in the log."""
        lines = self.window.lines
        at = self._place_of_hit(ahead, here)
        places = range(at + 1, len(lines)) if ahead else range(at - 1, -1, -1)
        for index in places:
            if lines[index].kind in ("", "partial") and match(lines[index].text):
                self._go_to_hit(lines[index].offset)
                return
        if (self.window.last if ahead else self.window.first) or not self.part.stage:
            self.panel.notice("nothing further on" if ahead else "nothing before this")
            return
        asked = ReadLog(
            self.part.stage, self.part.attempt, self.window.end if ahead else self.window.start, ahead, 1, text
        )

        def come(block: LogBlock) -> None:
            hits = [line for line in block.lines if line.kind != "skipped"]
            if hits:
                self._go_to_hit((hits[0] if ahead else hits[-1]).offset)
            else:
                self.panel.notice("nothing further on" if ahead else "nothing before this")

        self.panel.notice("searching")
        self.panel.inquire(asked, come, lambda problem: self.panel.notice(words_of(problem), "bad"))

    def _place_of_hit(self, ahead: bool, here: bool) -> int:
        """Index of the line from which a search goes on: the last hit if it is in view, else an edge of the view."""
        top, height = self.scroll_offset.y, self.room.height
        first, last = self.line_at(top), min(len(self.window.lines) - 1, self.line_at(top + height - 1))
        hit = self.window.index_of(self._hit) if self._hit is not None else None
        if hit is not None and first <= hit <= last and not here:
            return hit
        return first - 1 if ahead else last + 1

    def _go_to_hit(self, offset: int) -> None:
        self._hit = offset
        self.go_to(offset)

    def action_filter(self) -> None:
        self.panel.ask_line("&", self._filter_text, self._begin_filter, "only lines that match; empty shows all")

    def _begin_filter(self, text: str) -> None:
        try:
            self._filter = _matcher(text) if text else None
        except FindingError as problem:
            self.panel.notice(words_of(problem), "bad")
            return
        self._filter_text = text
        self.window.match = self._filter
        self.chosen = None
        self.follow = True
        self._reload_tail()
        self._after_change(())

    def action_time(self) -> None:
        self.panel.ask_line("time ", "", self._go_to_time, "14:02, 14:02:09 or 2026-11-29 14:02")

    def _go_to_time(self, text: str) -> None:
        if text.strip():
            command = FindLogTime(self.part.stage, self.part.attempt, text)
            self.panel.inquire(command, self.go_to, lambda problem: self.panel.notice(words_of(problem), "bad"))

    def action_load(self) -> None:
        """Bring the skipped part that is in view, or what is before the first line."""
        lines = self.window.lines
        top = self.line_at(self.scroll_offset.y)
        bottom = self.line_at(self.scroll_offset.y + self.room.height)
        rules = [line for line in lines[top : bottom + 1] if line.kind == "skipped"]
        rules = rules or [line for line in reversed(lines[:top]) if line.kind == "skipped"][:1]
        if rules:
            self.read("fill", rules[0].end, fetch=True, rule=rules[0])
        elif not self.window.first:
            self.read("before", self.window.start)
        else:
            self.panel.notice("the log is here from its beginning on")

    def action_whole(self) -> None:
        """Show a line that was cut in full, as far as a dialog can hold it."""
        lines, top = self.window.lines, self.line_at(self.scroll_offset.y)
        seen = lines[top : self.line_at(self.scroll_offset.y + self.room.height - 1) + 1]
        marked = self.window.index_of(self._cursor) if self.chosen is not None else None
        line = lines[marked] if marked is not None else next((one for one in seen if _CUT.search(one.text)), None)
        if line is None or line.offset < 0:
            self.panel.notice("no line in view was cut")
            return
        bytes_wanted = min(line.end - line.offset, WHOLE_BYTES)

        def come(answer: dict[str, Any]) -> None:
            from eagle3_tui.screens.dialogs import MessageDialog

            data = bytes(answer["data"][:bytes_wanted])
            more = line.end - line.offset - len(data)
            told = f" …and {size(more)} more" if more > 0 else ""
            words = visible(data.decode("utf-8", "replace").rstrip("\r\n")) + told
            heading = f"Line of {size(line.end - line.offset)}"
            self.app.push_screen(MessageDialog(heading, words=words, severity=""))

        asked = Logs(self.part.stage, self.part.attempt, line.offset, bytes_wanted)
        self.panel.inquire(asked, come, self.panel.refused_by_the_way)

    # Select and copy

    def action_select(self) -> None:
        """Begin to select at the last line in view, or leave it."""
        if self.chosen is not None or not self.window.lines:
            self.chosen = None
        else:
            self.follow = False
            last = min(len(self.window.lines) - 1, self.line_at(self.scroll_offset.y + self.room.height - 1))
            self._anchor = self._cursor = self.window.lines[last].offset
            self.chosen = (self._anchor, self._cursor)
        self._retitle()
        self.refresh()

    def _extend_choice(self, lines: int) -> None:
        index = (self.window.index_of(self._cursor) or 0) + lines
        index = min(max(0, index), len(self.window.lines) - 1)
        self._cursor = self.window.lines[index].offset
        self.chosen = (min(self._anchor, self._cursor), max(self._anchor, self._cursor))
        row, top, height = self.row_of(index), self.scroll_offset.y, self.room.height
        if not top <= row < top + height:
            self.scroll_to(y=row if row < top else row - height + 1, animate=False, immediate=True, force=True)
        self._retitle()
        self.refresh()

    def _chosen_lines(self) -> list[str]:
        if self.chosen is None:
            return []
        first, last = self.chosen
        return [plain(line.text) for line in self.window.lines if first <= line.offset <= last]

    @property
    def selected_text(self) -> str:
        return "\n".join(self._chosen_lines())

    def text_to_copy(self) -> str:
        """The selected lines, which are let go, or those in view."""
        if self.chosen is not None:
            text = "\n".join(self._chosen_lines())
            self.action_select()
            return text
        top = self.line_at(self.scroll_offset.y)
        bottom = self.line_at(self.scroll_offset.y + self.room.height - 1)
        return "\n".join(plain(line.text) for line in self.window.lines[top : bottom + 1] if not line.kind)

    def step_out(self) -> bool:
        """Leave the innermost of selection, search and filter; False when there is none."""
        if self.chosen is not None:
            self.action_select()
        elif self._search_text:
            self._begin_search("")
        elif self._filter_text:
            self._begin_filter("")
        elif self.screen.has_class("-zoomed"):
            self.screen.remove_class("-zoomed")
        else:
            return False
        return True

    def save_files(self) -> dict[str, str]:
        """The lines that are held, as text."""
        lines = self._chosen_lines() or [plain(line.text) for line in self.window.lines if not line.kind]
        return {f"{clean(self.part.stage, 40) or 'log'}.log": "\n".join(lines) + "\n"}


def _matcher(text: str) -> Matcher:
    """Imported on first use: most starts of the panel search for nothing. Raises FindingError."""
    from eagle3_backend.runs.logreader import Matcher

    return Matcher(text)
