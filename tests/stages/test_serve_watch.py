"""The second source of a service's acceptance: the engine's log lines beside its counters."""

from __future__ import annotations

import threading

import pytest

from eagle3_backend.engines.log_metrics import LogWindows
from eagle3_backend.engines.metrics import Drafting, parse
from eagle3_backend.stages import serve
from eagle3_backend.stages.serve import SecondSource


class Hanging:
    """A service whose metrics page never comes; it is asked to leave once it was asked for the page."""

    windows = LogWindows(3)

    def __init__(self):
        self.stopping = False

    def check(self):
        pass

    def scrape(self):
        self.stopping = True
        threading.Event().wait()


LINE = (
    "(APIServer pid=1) INFO 11-29 17:33:22 [metrics.py:1] SpecDecoding metrics: Mean acceptance length: 1.80, "
    "Accepted throughput: 4.00 tokens/s, Drafted throughput: 15.00 tokens/s, Accepted: {accepted} tokens, Drafted: "
    "{drafted} tokens, Per-position acceptance rate: 0.500, 0.200, 0.100, Avg Draft acceptance rate: 26.7%\n"
)


def test_a_page_that_never_comes_keeps_no_stop_waiting(monkeypatch):
    monkeypatch.setattr(serve, "METRIC_SECONDS", 0.0)
    service = Hanging()
    serve._watch(service, service, service, page(0, 0))
    assert service.stopping


def page(drafts, accepted, engines=1):
    """Counters as vLLM has them, spread over data-parallel engines."""
    lines = []
    for engine in range(engines):
        share = drafts // engines, accepted // engines
        lines.append(f'vllm:spec_decode_num_drafts_total{{engine="{engine}"}} {share[0]}')
        lines.append(f'vllm:spec_decode_num_draft_tokens_total{{engine="{engine}"}} {3 * share[0]}')
        lines.append(f'vllm:spec_decode_num_accepted_tokens_total{{engine="{engine}"}} {share[1]}')
    return parse("\n".join(lines))


def logged(*windows):
    log = LogWindows(3)
    for accepted, drafted in windows:
        log.feed_bytes(LINE.format(accepted=accepted, drafted=drafted).encode())
    return log.windows, log.drafting


@pytest.mark.parametrize("engines", [1, 2])
def test_lines_between_two_pages_agree_with_them(engines):
    source = SecondSource(page(0, 0))
    assert source.take(0, logged()[1], page(20, 16, engines)) == {}
    assert source.take(0, logged()[1], page(40, 32, engines)) == {}
    told = source.take(*logged((8, 30), (24, 90)), page(60, 48, engines))
    assert told == {"log_windows": 2.0, "log_length": pytest.approx(1.8), "log_agrees": 1.0}
    assert source.disagreement() is None
    assert source.take(*logged((8, 30), (24, 90)), page(80, 64, engines)) == {}, "nothing new was logged"


@pytest.mark.parametrize("windows", [((60, 90),), ((1, 3),)], ids=["more than was counted", "lines are missing"])
def test_lines_that_cannot_be_of_these_counters_are_told_once(windows):
    source = SecondSource(page(20, 16))
    told = source.take(*logged(*windows), page(40, 32))
    assert told["log_agrees"] == 0.0
    assert source.disagreement().code == "metrics_disagree"
    source.take(*logged(*windows, (1, 3)), page(60, 48))
    assert source.disagreement() is None


def test_after_a_restart_of_a_process_log_and_counters_are_no_longer_compared():
    source = SecondSource(page(20, 16))
    source.begin_anew()
    assert "log_agrees" not in source.take(*logged((24, 90)), page(3, 2))
    assert source.disagreement() is None


def test_means_without_counts_are_shown_and_not_judged():
    source = SecondSource(page(0, 0))
    told = source.take(3, Drafting(400.0, 1200.0, 300.0, exact=False), page(0, 0))
    assert told == {"log_windows": 3.0, "log_length": 1.75}
    assert source.disagreement() is None
