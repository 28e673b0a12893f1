"""Files that the operator asks for: what has the focus, or a picture of the screen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from eagle3_tui.places import saved_files

if TYPE_CHECKING:
    from eagle3_tui.app import Panel


def save(panel: Panel, files: dict[str, str]) -> None:
    """Write files beside those saved before, under a name with the time, and say where."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(panel.wall()))
    folder = saved_files()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [_write(folder / f"{stamp}-{name}", content) for name, content in files.items()]
    except OSError as problem:
        panel.notice(f"cannot save: {problem.strerror}: {folder}", "bad")
        return
    panel.notice("saved " + ", ".join(map(str, paths)), "good")


def _write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8", errors="replace")
    return path


def picture_of(panel: Panel) -> dict[str, str]:
    """The screen as SVG and as text."""
    strips = panel.screen._compositor.render_strips()
    text = "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"
    return {"screen.svg": panel.export_screenshot(), "screen.txt": text}
