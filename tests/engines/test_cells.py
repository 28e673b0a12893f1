"""Speeds of ways to draft at each load: paired by prompt, and what follows from them."""

from __future__ import annotations

import pytest

from eagle3_backend.engines.answers import Answer, Prompt, Steps
from eagle3_backend.engines.cells import MINE, NGRAM, Cell, Way, need, recommended, rows_of
from eagle3_backend.engines.metrics import Drafting
from eagle3_backend.engines.rounds import Round
from eagle3_backend.engines.timing import Timed

RESAMPLES, SEED = 200, 5
PROMPTS = [Prompt(str(number), "file", f"Say {number}.") for number in range(8)]


def answer(prompt: Prompt, seconds: float, accepted: tuple[int, ...] = (), parts: int = 4) -> Answer:
    """Ten tokens: the first after a tenth of the time, the rest in equal steps."""
    arrivals = tuple((seconds * (0.1 + 0.9 * part / (parts - 1)), 1 if part else 7) for part in range(parts))
    steps = Steps.of_order(accepted)
    return Answer(prompt, (1,), tuple(range(10)), "", "stop", seconds, steps, 10, arrivals)


def timed(answers: list[Answer], others: float = 0.0) -> Timed:
    drafts = sum(one.steps.count for one in answers)
    found = Round(tuple(answers), Drafting(drafts, 3.0 * drafts, 0.0), others, False, 3)
    return Timed(found, max(one.seconds for one in answers))


def cell(way: Way, ratio: float, concurrency: int = 1, spread: float = 0.0, others: float = 0.0) -> Cell:
    """Prompts of different lengths on both servers; ours is ``ratio`` times as fast, more or less by ``spread``."""
    rounds = [PROMPTS[start : start + concurrency] for start in range(0, len(PROMPTS), concurrency)]
    plain, drafted = [], []
    for number, some in enumerate(rounds):
        seconds = {prompt: 1.0 + int(prompt.id) for prompt in some}
        uneven = ratio + (spread if number % 2 else -spread)
        plain.append(timed([answer(prompt, seconds[prompt]) for prompt in some]))
        faster = [answer(prompt, seconds[prompt] / uneven, (2, 1)) for prompt in some]
        drafted.append(timed(faster, others if number == 0 else 0.0))
    return Cell(way, concurrency, tuple(drafted), tuple(plain))


THREE, FIVE, LOOKUP = Way(MINE, 3), Way(MINE, 5), Way(NGRAM, 3)


def test_a_speed_up_is_paired_by_prompt_so_that_long_prompts_widen_no_interval() -> None:
    speedup = cell(THREE, 1.5).speedup(RESAMPLES, SEED)
    assert (speedup.mean, speedup.low, speedup.high) == pytest.approx((1.5, 1.5, 1.5))
    assert speedup.prompts == 8


def test_the_target_alone_stands_first_at_each_load() -> None:
    rows = rows_of([cell(THREE, 1.5), cell(LOOKUP, 1.1), cell(THREE, 0.8, 4)], RESAMPLES, SEED)
    assert [(row["way"], row["concurrency"]) for row in rows] == [
        ("none", 1), ("mine", 1), ("ngram", 1), ("none", 4), ("mine", 4)
    ]  # fmt: skip
    assert "speedup" not in rows[0] and rows[0]["prompts"] == 8
    assert rows[1]["acceptance_length"]["mean"] == 2.5 and rows[1]["acceptance_length"]["steps"] == 16


def test_waiting_times_are_those_of_the_stream() -> None:
    none, mine = rows_of([cell(THREE, 2.0)], RESAMPLES, SEED)
    assert none["first_token_ms"]["p50"]["mean"] == pytest.approx(400.0)
    assert none["first_token_ms"]["p99"]["mean"] == pytest.approx(800.0)
    assert none["gap_ms"]["p99"]["mean"] == pytest.approx(2400.0)
    assert mine["gap_ms"]["p50"]["mean"] == pytest.approx(none["gap_ms"]["p50"]["mean"] / 2)
    # Three tokens came after the first seven, in nine tenths of the 4.5 s that an answer took.
    assert none["token_ms"]["mean"] == pytest.approx(1350.0)


def test_total_speed_is_that_of_a_request_times_the_requests_in_flight() -> None:
    row = rows_of([cell(THREE, 1.0, 4)], RESAMPLES, SEED)[0]
    assert row["tokens_per_second"] == pytest.approx(row["tokens_per_second_each"]["mean"] * row["in_flight"], rel=0.01)
    assert 1 < row["in_flight"] < 4


def test_rounds_in_which_others_were_served_count_on_neither_side() -> None:
    none, mine = rows_of([cell(THREE, 1.5, 4, others=32.0)], RESAMPLES, SEED)
    assert mine["rounds_left_out"] == 1
    assert none["prompts"] == mine["prompts"] == mine["speedup"]["prompts"] == 4


def test_what_was_never_ours_alone_has_no_figure() -> None:
    rows = rows_of([cell(THREE, 1.5, 8, others=32.0)], RESAMPLES, SEED)
    assert rows[1]["speedup"] is None and rows[1]["tokens_per_second"] is None and rows[1]["prompts"] == 0
    assert recommended(rows) == [] and need([cell(THREE, 1.5, 8, others=32.0)], RESAMPLES, SEED) == []


def test_answers_that_were_not_streamed_tell_no_waiting_times() -> None:
    plain = tuple(timed([Answer(one, (), (), "", "stop", 2.0, generated=10)]) for one in PROMPTS)
    rows = rows_of([Cell(THREE, 1, plain, plain)], RESAMPLES, SEED)
    assert all(row[name] is None for row in rows for name in ("first_token_ms", "gap_ms", "token_ms"))
    assert rows[1]["speedup"]["mean"] == 1.0


def depths(*cells: Cell) -> list[tuple[int, int]]:
    return [(entry["concurrency"], entry["depth"]) for entry in recommended(rows_of(cells, RESAMPLES, SEED))]


def test_the_depth_is_recommended_at_each_load_and_off_where_drafting_loses() -> None:
    cells = [cell(THREE, 1.3), cell(FIVE, 1.5), cell(THREE, 1.1, 4), cell(FIVE, 0.9, 4), cell(THREE, 0.7, 8)]
    assert depths(*cells) == [(1, 5), (4, 3), (8, 0)]
    told = recommended(rows_of(cells, RESAMPLES, SEED))
    assert told[2]["because"].startswith("every measured depth loses, the best one x0.70")


def test_a_gain_that_is_not_proven_is_no_recommendation() -> None:
    (entry,) = recommended(rows_of([cell(THREE, 1.05, spread=0.5)], RESAMPLES, SEED))
    assert entry["depth"] == 0 and "no measured depth is proven faster" in entry["because"]


def test_depths_that_cannot_be_told_apart_are_named() -> None:
    cells = [cell(THREE, 1.49, spread=0.2), cell(FIVE, 1.5, spread=0.2)]
    (entry,) = recommended(rows_of(cells, RESAMPLES, SEED))
    assert entry["because"].endswith("not told apart from depth 3")


@pytest.mark.parametrize(
    ("mine", "other", "verdict"),
    [
        (1.5, 1.2, "drafter_pays"),
        (1.5, 0.9, "drafter_pays"),
        (1.2, 1.5, "other_is_better"),
        (0.9, 1.2, "other_is_better"),
        (1.5, 1.5, "other_may_do"),
        (0.8, 0.9, "speculation_loses"),
        (1.5, None, "drafter_pays"),
        (0.8, None, "speculation_loses"),
    ],
)
def test_whether_a_drafter_is_needed(mine: float, other: float | None, verdict: str) -> None:
    cells = [cell(THREE, mine)] + ([cell(LOOKUP, other)] if other else [])
    (found,) = need(cells, RESAMPLES, SEED)
    assert found["verdict"] == verdict
    assert found["words"].startswith("With 1 request in flight: ")


def test_a_speed_up_that_includes_one_proves_no_need() -> None:
    (found,) = need([cell(THREE, 1.05, spread=0.5)], RESAMPLES, SEED)
    assert found["verdict"] == "not_proven"
