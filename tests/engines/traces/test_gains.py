"""What speculation can win, by measured times, and what is not told where something was not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.engines.traces.gains import Profiled, at_length, gains

MEASURED = Profiled(
    plain=[10_000.0] * 20,
    steps=[16_000.0] * 20,
    draft=[4_000.0] * 20,
    accepted=[(10, 10)] * 8,
    depth=3,
)


def means(found):
    return {name: figure["mean"] for name, figure in found.items() if isinstance(figure, dict)}


def test_the_speed_up_is_length_times_plain_step_over_drafting_step():
    told = means(gains(MEASURED))
    assert told["length"] == 2.0
    assert told["speedup"] == pytest.approx(2 * 10 / 16)
    assert told["perfect_drafter"] == pytest.approx(4 * 10 / 16)
    assert told["free_drafter"] == pytest.approx(2 * 10 / 12, abs=1e-4)
    assert told["most"] == pytest.approx(4 * 10 / 12, abs=1e-4)
    assert told["break_even_length"] == 1.6
    assert (told["step_ms"], told["draft_ms"], told["verify_ms"], told["plain_step_ms"]) == (16, 4, 12, 10)


def test_leviathans_formula_holds_under_its_assumptions():
    """Verifying costs what decoding costs, a drafter's pass a share c of it, tokens are accepted alike."""
    alpha, c, k = 0.5, 0.1, 3
    length = (1 - alpha ** (k + 1)) / (1 - alpha)
    steps = 1000
    found = gains(
        replace(
            MEASURED,
            steps=[10_000.0 * (1 + c * k)] * 20,
            draft=[10_000.0 * c * k] * 20,
            accepted=[(round((length - 1) * steps), steps)],
        )
    )
    assert found["speedup"]["mean"] == pytest.approx((1 - alpha ** (k + 1)) / ((1 - alpha) * (k * c + 1)), abs=1e-3)


def test_intervals_hold_their_mean_and_are_wide_where_steps_differ():
    found = gains(replace(MEASURED, plain=[8_000.0, 12_000.0] * 10, accepted=[(2, 10), (18, 10)] * 4))["speedup"]
    assert found["low"] < found["mean"] < found["high"]
    assert found["steps"] == 20


@pytest.mark.parametrize(
    ("gone", "unknown"),
    [
        ({"plain": []}, {"plain_step_ms", "plain_over_step", "break_even_length", "speedup", "perfect_drafter"}),
        ({"draft": []}, {"draft_ms", "verify_ms", "free_drafter", "most"}),
        ({"accepted": []}, {"length", "speedup", "free_drafter"}),
        ({"steps": [], "draft": []}, {"step_ms", "speedup", "most", "length"}),
    ],
)
def test_what_was_not_measured_is_not_told_and_the_reason_is(gone, unknown):
    found = gains(replace(MEASURED, **gone))
    assert unknown <= {name for name, figure in found.items() if figure is None}
    assert len(found["not_measured"]) == len(gone)


def test_a_benchs_length_gives_a_speed_up_of_its_own():
    found = gains(MEASURED)
    told = at_length(found, {"mean": 2.4, "low": 2.2, "high": 2.6})
    assert told == {"mean": 1.5, "low": 1.375, "high": 1.625}
    assert at_length(found, {}) is None
    assert at_length(gains(replace(MEASURED, plain=[])), {"mean": 2.0, "low": 2.0, "high": 2.0}) is None
