"""The collector of garbage never stops the panel while keys come."""

from __future__ import annotations

import gc

import pytest
from textual._styles_cache import StylesCache

from eagle3_tui import garbage
from eagle3_tui.garbage import EVERY_SECONDS, LONG_SECONDS, MANY, QUIET_SECONDS, RESIZES, Garbage, begin_process


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: asked.append(1))
    return asked


def test_old_garbage_is_collected_now_and_then(collected) -> None:
    garbage = Garbage(0.0)
    for second in range(int(3.5 * EVERY_SECONDS)):
        garbage.tick(float(second), settled=False)
    assert len(collected) == 3


async def test_it_comes_in_a_pause_after_keys_and_not_between_them(show, collected) -> None:
    async with show() as panel:
        del collected[:]
        for _ in range(3):
            await panel.pilot.press("j")
        assert not collected and not gc.isenabled()
        await panel.until(lambda: collected)
        assert gc.isenabled()
        await panel.pilot.pause(QUIET_SECONDS)
        assert len(collected) == 1


def test_keys_that_never_pause_do_not_let_garbage_grow_without_end(collected, monkeypatch) -> None:
    garbage = Garbage(0.0)
    garbage.pressed()
    garbage.tick(1.0, settled=False)
    assert not collected and not gc.isenabled()
    monkeypatch.setattr(gc, "get_count", lambda: (MANY, 0, 0))
    garbage.tick(2.0, settled=False)
    assert len(collected) == 1 and gc.isenabled()


@pytest.mark.parametrize(("took", "settled", "freezes"), [(2, True, 1), (2, False, 0), (0.5, True, 0)])
def test_what_makes_a_collection_long_is_frozen_where_no_screen_is_open_that_will_be_left(
    monkeypatch, took, settled, freezes
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    computed = 0.0

    def collect() -> None:
        nonlocal computed
        computed += took * LONG_SECONDS

    monkeypatch.setattr(gc, "collect", collect)
    Garbage(0.0, lambda: computed).collect(0.0, settled=settled)
    assert len(frozen) == freezes


async def test_nothing_of_a_screen_stays_that_was_left(show) -> None:
    def drawn() -> int:
        gc.collect()
        return sum(isinstance(one, StylesCache) for one in gc.get_objects())

    async def look() -> None:
        for key in ("question_mark", "escape") * 2:
            await panel.press(key)  # one by one: what is left at once is never drawn

    async with show() as panel:
        await look()
        panel.app._collect()
        before = drawn()
        await look()
        assert drawn() > before
        panel.app._collect()
        assert drawn() == before


async def test_a_terminal_that_is_dragged_wider_has_its_garbage_collected_meanwhile(show, collected) -> None:
    async with show() as panel:
        panel.app._collect()
        del collected[:]
        for columns in range(RESIZES):
            assert not collected
            await panel.pilot.resize_terminal(100 + columns, 40)
        assert len(collected) == 1


def test_nothing_else_looks_at_old_objects(monkeypatch) -> None:
    monkeypatch.setattr(garbage, "THRESHOLDS", (700, 10, garbage.THRESHOLDS[2]))  # which brings the third one sooner
    before, freed = gc.get_threshold(), []

    class Loop:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            freed.append(1)

    try:
        begin_process()
        gc.enable()
        Loop()
        gc.collect(0)
        assert freed  # young garbage still goes
        old = Loop()
        gc.collect(1)
        del old
        freed.clear()
        kept = [[] for _ in range(300_000)]
        assert not freed and len(kept) == 300_000
        gc.collect()
        assert freed
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
