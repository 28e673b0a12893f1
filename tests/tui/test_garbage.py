"""The collector of garbage never stops the panel while keys come."""

from __future__ import annotations

import gc

import pytest

from eagle3_tui.garbage import EVERY_SECONDS, QUIET_SECONDS, Garbage, begin_process


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: asked.append(1))
    return asked


def test_old_garbage_is_collected_now_and_then(collected) -> None:
    garbage = Garbage(0.0)
    for second in range(int(3.5 * EVERY_SECONDS)):
        garbage.tick(float(second))
    assert len(collected) == 3


def test_it_comes_in_a_pause_after_keys_and_not_between_them(collected) -> None:
    garbage = Garbage(0.0)
    for second in range(10):
        garbage.pressed(second - QUIET_SECONDS / 2)
        garbage.tick(float(second))
    assert not collected
    garbage.tick(10.0)
    garbage.tick(13.0)
    assert len(collected) == 1


def test_keys_put_it_off_for_a_while_only(collected) -> None:
    garbage = Garbage(0.0)
    for second in range(int(2.5 * EVERY_SECONDS)):
        garbage.pressed(second - QUIET_SECONDS / 2)
        garbage.tick(float(second))
    assert len(collected) == 2


def test_what_control_brought_is_frozen_once_with_the_next_collection(collected, monkeypatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    garbage, told = Garbage(0.0), []
    for second in range(int(4.5 * EVERY_SECONDS)):
        if second > 1.5 * EVERY_SECONDS:
            garbage.arrived()
        garbage.tick(float(second))
        told.append((len(collected), len(frozen)))
    assert told[-1] == (4, 1) and (1, 1) not in told and (2, 1) in told


def test_nothing_else_looks_at_old_objects() -> None:
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
        assert gc.get_threshold()[:2] == before[:2]
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
