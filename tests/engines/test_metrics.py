from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_backend.engines.metrics import (
    ACCEPTED,
    DRAFTS,
    drafting,
    increase,
    length_at,
    parse,
    sglang_responses,
    sglang_server_length,
    window,
)


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


def test_a_sample_behind_a_progress_meter_on_its_line_is_read() -> None:
    glued = "  0     0    0     0 --:--:-- --:--:" + 'vllm:spec_decode_num_drafts_total{engine="0"} 7.0\n'
    assert parse(glued).total(DRAFTS) == 7


SGLANG = """sglang:spec_verify_calls_total{{model_name="t",tp_rank="0"}} {verifies}.0
sglang:generation_tokens_total{{model_name="t"}} {generated}.0
sglang:spec_accept_length{{model_name="t",dp_rank="0"}} {length}
sglang:spec_accept_length{{model_name="t",dp_rank="1"}} 0.0
sglang:spec_num_steps{{model_name="t"}} 3.0
sglang:num_running_reqs{{model_name="t"}} 2.0
"""


def test_sglangs_window_is_its_counted_steps_times_its_gauge_and_says_that_it_is_an_estimate() -> None:
    before, after = (
        parse(SGLANG.format(verifies=count, generated=3 * count, length=length))
        for count, length in ((100, 1.2), (150, 2.5))
    )
    found = window(before, after, 10.0)
    assert (found.drafting.drafts, found.drafting.drafted, found.drafting.length) == (50, 150, 2.5)
    assert (found.drafting.exact, found.drafting.by_position) == (False, ())
    assert (found.tokens_per_second, found.running) == (15.0, 2)


def test_a_windows_figures_by_position_stand_only_where_something_was_drafted() -> None:
    before, after = parse(page(10, 30, 5, [4, 1, 0])), parse(page(110, 330, 85, [54, 26, 5]))
    told = window(before, after, 5.0).values()
    assert (told["drafts"], told["accepted"], told["acceptance_length"]) == (100, 80, 1.8)
    assert [told[f"acceptance_at_{place}"] for place in (1, 2, 3)] == [0.5, 0.25, 0.05]
    assert set(window(after, after, 5.0).values()) == {"requests_running", "requests_waiting", "tokens_per_second"}


def test_sglang_without_a_drafted_step_has_no_length() -> None:
    page = parse(SGLANG.format(verifies=0, generated=0, length=0.0))
    assert window(page, page, 1.0).drafting.length is None


def test_sglangs_responses_give_exact_counts() -> None:
    answers = [
        {"spec_verify_ct": 10, "spec_num_proposed_drafts": 30, "spec_num_correct_drafts": 12},
        {"completion_tokens": 1},
        {"spec_verify_ct": 5, "spec_num_proposed_drafts": 15, "spec_num_correct_drafts": 3},
    ]
    counted = sglang_responses(answers)
    assert (counted.length, counted.drafted, counted.exact) == (2.0, 45, True)


def test_a_position_accepted_more_often_than_the_one_before_it_is_a_contradiction() -> None:
    assert drafting(parse(page(10, 30, 12, [3, 8, 1]))).contradicts_itself


def test_sglangs_server_tells_its_mean_length_once_it_has_drafted() -> None:
    drafted = {"avg_spec_accept_length": 2.5, "last_gen_throughput": 40.0}
    assert sglang_server_length({"internal_states": [drafted, {"avg_spec_accept_length": 1.5}, {}]}) == 2.0
    assert sglang_server_length({"internal_states": [{"last_gen_throughput": 0.0}]}) is None
    assert sglang_server_length({}) is None


def test_a_position_that_is_no_number_is_no_position() -> None:
    odd = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="x"} 3.0\n'
    odd += "vllm:spec_decode_num_accepted_tokens_per_pos_total 3.0\n"
    assert drafting(parse(page(10, 30, 12, [8, 3, 1]) + odd)).by_position == (8, 3, 1)
