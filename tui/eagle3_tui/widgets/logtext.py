"""One line of a log as styled text: its own colours, its level, and what a search found in it."""

from __future__ import annotations

import re
from functools import lru_cache

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from eagle3_tui.text import cut, last_frame, split_colours, visible, without_colours

_LOUD = re.compile(r"\b(?:(ERROR|CRITICAL|FATAL|Traceback)|(WARN(?:ING)?))\b")
_PLAIN = Style(conceal=False, blink=False, blink2=False)


def styled(line: str, ascii_only: bool = False) -> Text:
    """A log line as text with its colours; nothing else of it reaches the terminal as a command."""
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


@lru_cache(maxsize=1 << 15)
def cells_of(line: str) -> int:
    """How wide a line is on the screen."""
    shown = plain(line)
    return len(shown) if shown.isascii() else cell_len(shown)


def most_cells(line: str) -> int:
    """At least `cells_of`, without a look at more than its length: a tab takes four cells, a wide character two."""
    return len(line) if line.isascii() and "\t" not in line else 4 * len(line)


def plain(line: str) -> str:
    """A line as a person reads it: what `styled` shows, without the cost of its colours."""
    return visible(without_colours(cut(last_frame(line))))


def loudness(line: str) -> str:
    """The role of a line by the level it names, or an empty string."""
    found = _LOUD.search(line[:200])
    return "" if found is None else "bad" if found.group(1) else "warn"


def highlighted(text: Text, pattern: re.Pattern[str] | None, style: Style) -> Text:
    """``text`` with every place that a search finds in ``style``."""
    if pattern is None:
        return text
    marked = text.copy()
    for count, found in enumerate(pattern.finditer(text.plain)):
        if count >= 200:
            break
        if found.end() > found.start():
            marked.stylize(style, found.start(), found.end())
    return marked
