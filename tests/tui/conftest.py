"""Panels on made-up data at a fixed time, and what stands on their screens."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from eagle3_backend.control.commands import Command, WriteProfile
from eagle3_backend.control.profiles import write
from eagle3_tui.app import Panel
from eagle3_tui.mock import MockSource

NOON = 1_764_424_931.0


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Shown:
    """A running panel."""

    app: Panel
    pilot: Pilot[None]
    source: MockSource
    clock: Clock

    def lines(self) -> list[str]:
        """The screen as a person reads it, one string a row."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    def text(self) -> str:
        return "\n".join(self.lines())

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
        await self.settle()

    async def settle(self) -> None:
        """Let answers arrive and the next frame be drawn, at the size that the terminal has now."""
        await self.pilot.pause()
        await self.pilot.pause(0.02)
        for _ in range(500):
            if self.app.screen._compositor.size == self.app.size:
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"never drawn at {self.app.size}")

    async def until(self, there: Callable[[], object]) -> None:
        """Wait for what a thread makes, or an answer that comes from one."""
        for _ in range(200):
            await self.settle()
            if there():
                return
        raise AssertionError(self.text())

    async def pass_time(self, seconds: float) -> None:
        """Move the clock and draw what is new."""
        self.clock.now += seconds
        self.app.pull()
        self.app._tick()
        await self.settle()


PICTURES = Path(__file__).parent / "pictures"

Open = Callable[..., AbstractAsyncContextManager[Shown]]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a panel: ``show(scene, size, source=..., **options of Panel)``."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("rich.console.Console.color_system", "truecolor")  # whatever terminal the tests run in
    monkeypatch.setattr("eagle3_tui.pace.ANSWER_SECONDS", 0.0)  # where time stands still, a key would hold back all
    time.tzset()

    @asynccontextmanager
    async def opened(
        scene: str = "train", size: tuple[int, int] = (120, 40), *, flood: int = 0, **options: Any
    ) -> AsyncIterator[Shown]:
        clock = Clock()
        source = options.pop("source", None) or MockSource(scene, flood=flood, clock=clock, wall=lambda: NOON)
        app = Panel(source, Path("local.toml"), wall=lambda: NOON, monotonic=clock, **options)
        async with app.run_test(size=size) as pilot:
            shown = Shown(app, pilot, source, clock)
            await shown.settle()
            await shown.settle()
            yield shown
        gc.enable()  # a panel that ends with a key leaves it off, and its process ends with it

    return opened


@pytest.fixture
def writing() -> type[MockSource]:
    """A mock that writes profiles as control does."""

    class Writing(MockSource):
        def _act(self, command: Command) -> Any:
            if isinstance(command, WriteProfile):
                return write(command.path, command.text, command.before)
            return super()._act(command)

    return Writing


@pytest.fixture
def compare() -> Callable[[str, list[str]], None]:
    """Compare a screen with the picture that is kept under a name; EAGLE3_UPDATE=1 writes it again."""

    def compared(name: str, lines: list[str]) -> None:
        file = PICTURES / f"{name}.txt"
        drawn = "\n".join(line.rstrip() for line in lines) + "\n"
        if os.environ.get("EAGLE3_UPDATE"):
            PICTURES.mkdir(exist_ok=True)
            file.write_text(drawn, encoding="utf-8")
        assert drawn == file.read_text(encoding="utf-8")

    return compared
