"""Draw the pictures of the documentation: the panel on made-up data at a fixed time, as SVG.

    python docs/screenshots.py [FOLDER]

The same code always draws the same bytes.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path

from eagle3_tui import candidates
from eagle3_tui.app import Panel
from eagle3_tui.choosing import Choosing
from eagle3_tui.mock import MockSource
from eagle3_tui.theme import PALETTES, Look, palette_name

NOON = 1_764_424_931.0
SIZE = (100, 30)
FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"

PICTURES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "first-run": ("first", (), False),
    "dashboard": ("train", (), False),
    "failed": ("failed", ("enter",), False),
    "chart": ("train", ("z",), False),
    "diff": ("done", ("compare",), False),
    "service": ("done", ("v", "s", "enter"), True),
}
"""By name: the scene of the mock, the keys pressed in it, and whether the light theme is taken."""


async def draw(name: str) -> str:
    """One picture as SVG, without references to anything outside it."""
    scene, keys, light = PICTURES[name]
    now = [1000.0]
    source = MockSource(scene, clock=lambda: now[0], wall=lambda: NOON)
    panel = Panel(source, Path("local.toml"), wall=lambda: NOON, monotonic=lambda: now[0])
    name = palette_name("truecolor", dark=not light)
    panel.look, panel.theme = Look(PALETTES[name]), name
    async with panel.run_test(size=SIZE) as pilot:
        await _settled(panel, now)
        for key in keys:
            if key == "compare":
                await Choosing(panel)._show(*candidates.artifacts(panel.picture))
            else:
                await pilot.press(key)
            await pilot.pause(0.1)
        await _settled(panel, now)
        return _plain(panel.export_screenshot(title="eagle3-tui"))


async def _settled(panel: Panel, now: list[float]) -> None:
    """Let answers come, messages in the footer go, and the next frame be drawn."""
    for _ in range(4):
        now[0] += 2.0
        panel.pull()
        panel._tick()
        await asyncio.sleep(0.1)


def _plain(svg: str) -> str:
    """A third of the size: the reader's own font, short names, and nothing that cannot be seen."""
    svg = re.sub(r"<!--.*?-->|\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;]+;", f"font-family: {FONT};", svg)
    svg = re.sub(
        r'<clipPath id="[^"]*-line-\d+">.*?</clipPath>| clip-path="[^"]*-line-\d+\)"', "", svg, flags=re.DOTALL
    )
    svg = re.sub(r"<text [^>]*>(?:&#160;)*\n?</text>", "", svg)
    svg = re.sub(r"terminal-\d+-", "", svg)
    return re.sub(r"\n\s+", "\n", svg)


def main(folder: Path) -> None:
    os.environ["TZ"] = "UTC"
    os.environ.pop("NO_COLOR", None)
    time.tzset()
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        path = folder / f"{name}.svg"
        path.write_text(asyncio.run(draw(name)), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
