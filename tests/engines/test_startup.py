"""What a start took from the operator's word to drafted tokens, and which part of it was not the engine's."""

from __future__ import annotations

import pytest

from eagle3_backend.engines.startup import PARTS, Moments, read, startup, words

MOMENTS = Moments(asked=100.0, claimed=100.5, began=101.5, spawned=102.0, ready=132.0, drafted=133.25)


def test_the_overhead_is_what_the_engines_own_start_up_leaves_of_the_whole():
    told = startup(MOMENTS, replaces=False, asked_at=7.0)
    assert [told[name] for name in PARTS] == [0.5, 1.0, 0.5, 1.25]
    assert (told["total"], told["engine"], told["waited"], told["overhead"]) == (33.25, 30.0, 0.0, 3.25)


def test_the_time_until_the_endpoint_before_has_ended_is_told_apart():
    told = startup(MOMENTS, replaces=True, asked_at=7.0)
    assert (told["waited"], told["supervisor"], told["overhead"]) == (1.0, 0.0, 2.25)
    assert "1.0 s waiting for the one before" in words(told)


@pytest.mark.parametrize("spoiled", [{"engine": None}, {"total": "33"}, {"answer": True}])
def test_figures_that_are_not_whole_are_none(spoiled):
    told = startup(MOMENTS, replaces=False, asked_at=7.0)
    assert read({**told, "kind": "launch"}) == told
    assert read({**told, **spoiled}) == {}
