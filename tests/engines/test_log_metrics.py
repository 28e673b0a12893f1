from __future__ import annotations

import pytest

from eagle3_backend.engines.log_metrics import LogWindows


def vllm(accepted, drafted, rates):
    return (
        "(APIServer pid=1) INFO 04-09 20:54:46 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.85, "
        f"Accepted throughput: 38.40 tokens/s, Drafted throughput: 57.90 tokens/s, Accepted: {accepted} tokens, "
        f"Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 61.7%"
    )


def sglang(running, length, rate):
    return (
        f"[2026-03-24 11:02:07 TP0] Decode batch, #running-req: {running}, #token: 412, token usage: 0.00, "
        f"accept len: {length:.2f}, accept rate: {rate:.2f}, cuda graph: True, gen throughput (token/s): 39.12"
    )


def read(*lines, depth=None):
    log = LogWindows(depth)
    log.feed_bytes("\n".join(lines).encode())
    log.close()
    return log


def test_windows_are_pooled_by_their_counts_and_not_by_their_means():
    log = read(vllm(740, 1200, "0.800, 0.600, 0.450"), vllm(290, 600, "0.700, 0.450, 0.300"))
    assert (log.windows, log.drafting.drafts, log.exact) == (2, 600, True)
    assert log.drafting.length == pytest.approx(1 + 1030 / 600)
    assert log.drafting.position_rates == pytest.approx((0.7667, 0.55, 0.4), abs=1e-4)


def test_a_window_without_drafts_adds_nothing():
    log = read(vllm(740, 1200, "0.800, 0.600, 0.450"), vllm(0, 0, "nan, nan, nan"))
    assert log.drafting.drafts == 400
    assert log.drafting.position_rates == pytest.approx((0.8, 0.6, 0.45))


def test_sglangs_lines_are_weighted_by_their_requests_and_marked_as_estimates():
    log = read(sglang(1, 3.0, 0.67), sglang(3, 2.0, 0.33), depth=3)
    assert log.drafting.length == pytest.approx(2.25)
    assert log.drafting.rate == pytest.approx(1.25 / 3)
    assert not log.drafting.exact
    assert log.drafting.by_position == ()


def test_the_rate_of_older_releases_is_recomputed_from_the_length():
    log = read(sglang(1, 1.0, 0.25), depth=3)
    assert (log.drafting.length, log.drafting.rate, log.printed_rate) == (1.0, 0.0, 0.25)


def test_a_log_without_figures_has_none():
    log = read("Decode batch, #running-req: 1, gen throughput (token/s): 3", "SpecDecoding metrics: nothing")
    assert (log.windows, log.drafting.length) == (0, None)
