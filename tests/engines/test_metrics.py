from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_backend.engines.metrics import ACCEPTED, DRAFTS, drafting, increase, length_at, parse


def page(drafts: int, drafted: int, accepted: int, positions: list[int], engine: str = "0") -> str:
    labels = f'engine="{engine}",model_name="target"'
    lines = [
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}.0",
        f"vllm:spec_decode_num_drafts_created{{{labels}}} 1.7e+09",
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {drafted}.0",
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {accepted}.0",
    ]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {count}.0'
        for place, count in enumerate(positions)
    ]
    return "\n".join(lines) + "\n"


def test_length_and_rates_follow_from_the_counters() -> None:
    counted = drafting(parse(page(2248, 6744, 1973, [1322, 580, 71])))
    assert counted.length == pytest.approx(1.8777, abs=1e-4)
    assert counted.rate == pytest.approx(0.2926, abs=1e-4)
    assert counted.position_rates == pytest.approx((0.5881, 0.2580, 0.0316), abs=1e-4)
    assert not counted.contradicts_itself


def test_a_window_is_the_difference_of_two_scrapes() -> None:
    before = parse(page(100, 300, 90, [60, 20, 10]))
    after = parse(page(140, 420, 130, [80, 30, 20]))
    window = increase(before, after)
    assert not window.reset
    assert drafting(window.scrape).length == 2.0
    assert drafting(window.scrape).by_position == (20, 10, 10)


def test_a_server_that_drafts_for_the_first_time_had_zero_before() -> None:
    window = increase(parse("vllm:num_requests_running 0.0\n"), parse(page(10, 30, 5, [4, 1, 0])))
    assert drafting(window.scrape).drafts == 10


def test_engines_of_one_server_are_added() -> None:
    counted = drafting(parse(page(10, 30, 12, [8, 3, 1], "0") + page(30, 90, 8, [8, 0, 0], "1")))
    assert (counted.drafts, counted.accepted, counted.by_position) == (40, 20, (16, 3, 1))


def test_a_restart_of_one_engine_is_seen_behind_the_growth_of_another() -> None:
    before = parse(page(100, 300, 90, [60, 20, 10], "0") + page(100, 300, 90, [60, 20, 10], "1"))
    after = parse(page(500, 1500, 490, [400, 60, 30], "0") + page(5, 15, 2, [2, 0, 0], "1"))
    window = increase(before, after)
    assert window.reset
    assert window.scrape.total(DRAFTS) == 405
    assert window.scrape.total(ACCEPTED) == 402


def test_gauges_may_fall_without_meaning_a_restart() -> None:
    assert not increase(parse("vllm:num_requests_running 8\n"), parse("vllm:num_requests_running 0\n")).reset


def test_no_draft_means_no_length_rather_than_one() -> None:
    counted = drafting(parse(""))
    assert counted.length is None
    assert counted.rate is None
    assert counted.position_rates == ()


@pytest.mark.parametrize("positions", [[60, 20, 9], [60, 30, 10]])
def test_positions_that_do_not_add_up_are_noticed(positions: list[int]) -> None:
    assert drafting(parse(page(100, 300, 90, positions))).contradicts_itself


def test_more_drafted_tokens_than_depth_times_drafts_are_noticed() -> None:
    assert drafting(parse(page(100, 301, 90, [60, 20, 10]))).contradicts_itself


def test_shallower_depths_use_the_first_positions_only() -> None:
    rates = (0.6, 0.25, 0.05)
    assert [length_at(rates, depth) for depth in range(4)] == pytest.approx([1.0, 1.6, 1.85, 1.9])


def test_label_values_may_hold_commas_braces_quotes_and_line_ends() -> None:
    scrape = parse('a_total{path="x,y}z\\"q\\"\\\\\\n",engine="0"} 3 1700000000000\n')
    assert scrape.total("a_total", path='x,y}z"q"\\\n') == 3


def test_a_progress_meter_in_the_page_is_no_sample() -> None:
    noise = "  % Total    % Received\n100 58595  100 58595    0     0  5684k      0 --:--:-- # HELP x y\n"
    assert drafting(parse(noise + page(4, 12, 2, [2, 0, 0]))).drafts == 4


def test_a_real_page_of_vllm_reads_whole() -> None:
    text = (Path(__file__).parent / "vllm-0.32.0-metrics.txt").read_text(encoding="utf-8")
    scrape = parse(text)
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(scrape.samples) == len(samples)
    counted = drafting(scrape)
    assert len(counted.by_position) == 3
    assert counted.drafts > 0
    assert not counted.contradicts_itself
