"""Which curves get a tile."""

from __future__ import annotations

from eagle3_tui.theme import Look
from eagle3_tui.widgets.charts import curves, spark_line

RISING = ((0.0, 1.0), (1.0, 2.0))


def titles(series, stage: str = "") -> list[str]:
    return [curve.title for curve in curves(series, stage)]


def test_without_series_the_measures_that_are_awaited_are_named() -> None:
    assert titles({}) == ["loss", "acceptance length", "held-out acceptance", "tok/s"]


def test_training_shows_loss_acceptance_and_gradient_norm() -> None:
    series = {name: RISING for name in ("train/loss", "train/loss_0", "train/accept_len", "train/gradient_norm")}
    assert titles(series)[:3] == ["loss", "acceptance length", "grad norm"]


def test_the_stage_at_work_comes_first() -> None:
    series = {"train/loss": RISING, "train/accept_len": RISING, "generate/tokens_per_second": RISING}
    assert titles(series, "generate")[0] == "tok/s"
    assert titles(series, "train")[0] == "loss"


def test_bench_shows_what_the_engine_counts_though_training_filled_the_tiles() -> None:
    names = ("train/loss", "train/accept_len", "eval/accept_len", "train/gradient_norm", "acceptance_length")
    assert titles({name: RISING for name in names}, "bench")[0] == "engine's acceptance length"


def test_a_series_nobody_knows_is_shown_where_there_is_room() -> None:
    assert "mine/entropy" in titles({"mine/entropy": RISING})


def test_a_tile_never_shows_a_series_twice_and_there_are_four() -> None:
    series = {f"own/{number}": RISING for number in range(9)}
    assert len(set(titles(series))) == 4


def test_sparklines_that_do_not_fit_are_left_out() -> None:
    series = {name: RISING for name in ("train/loss", "train/accept_len", "train/gradient_norm")}
    for width in range(10, 100, 7):
        assert spark_line(series, "", Look(), width).cell_len <= max(width, 12)


def test_an_awaited_measure_names_the_stage_it_comes_with() -> None:
    assert [curve.awaits for curve in curves({})] == ["train", "train", "train", "generate"]
    assert [curve.awaits for curve in curves({}, "train")] == ["", "", "", "generate"]
