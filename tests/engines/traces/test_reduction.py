"""Every moment of a decode step belongs to one category, whatever runs at the same time."""

from __future__ import annotations

import gzip
import json
import random

import pytest

from eagle3_backend.engines.traces import recording
from eagle3_backend.engines.traces.reduction import timelines
from eagle3_backend.engines.traces.report import findings_of, profile
from eagle3_backend.findings import FindingError

ATTENTION, GEMM = "flash_fwd_splitkv_kernel", "nvjet_tst_128x64"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
PLAIN_STEP = "execute_context_0(0)_generation_4(4)"


@pytest.fixture
def reduced(written):
    def reduce(trace, name="rank0.trace.json"):
        return timelines(written(trace, name))

    return reduce


@pytest.fixture
def one_step(new_trace):
    """A trace of two steps of 100 us; kernels go into the first."""

    def make(*kernels):
        trace = new_trace()
        for begin in (0, 100):
            trace.mark(PLAIN_STEP, begin, begin + 90)
        for name, begin, end, *stream in kernels:
            trace.kernel(name, begin, end, stream=stream[0] if stream else 7)
        return trace

    return make


def shares(timeline):
    return {name: round(share, 4) for name, share in timeline.shares().items() if share}


def test_the_shares_of_a_step_sum_to_one_and_gaps_are_told(steps_with_drafter, reduced):
    (found,) = reduced(steps_with_drafter())
    assert shares(found) == {"attention": 0.4, "gemm": 0.2, "sampling": 0.1, "drafter": 0.2, "gap": 0.1}
    assert found.step_us == [100.0] * 4 and found.draft_us == [20.0] * 4
    assert found.drafter_told_by == "annotations"
    assert found.drafter_shares() == {"gemm": 1.0}


def test_without_marks_the_drafter_is_what_computes_after_the_sampler(steps_with_drafter, reduced):
    (found,) = reduced(steps_with_drafter(marked=False))
    assert shares(found)["drafter"] == 0.2
    assert found.drafter_told_by == "order"


def test_the_targets_head_behind_its_pass_is_not_the_drafters(one_step, reduced):
    (found,) = reduced(one_step((ATTENTION, 0, 90), (GEMM, 90, 95), ("_gumbel_sample_kernel", 95, 100)))
    assert found.drafter_told_by == ""
    assert shares(found) == {"attention": 0.9, "gemm": 0.05, "sampling": 0.05}


def test_gaps_between_the_drafters_kernels_are_gaps_and_part_of_its_passes(new_trace, reduced):
    trace = new_trace()
    for at in (0, 100):
        trace.mark("step[VERIFY bs=4]", at, at + 40).kernel(ATTENTION, at, at + 40)
        trace.mark("step[DRAFT bs=4]", at + 40, at + 60).kernel(GEMM, at + 40, at + 60)
        trace.mark("step[DRAFT bs=4]", at + 80, at + 100).kernel(GEMM, at + 80, at + 100)
    (found,) = reduced(trace)
    assert shares(found) == {"attention": 0.4, "drafter": 0.4, "gap": 0.2}
    assert found.draft_us == [60.0]


def test_communication_under_compute_is_hidden_and_the_rest_exposed(one_step, reduced):
    (found,) = reduced(one_step((GEMM, 0, 60), (REDUCE, 40, 100, 20)))
    assert shares(found) == {"gemm": 0.6, "all_reduce": 0.4}
    assert found.hidden == {"all_reduce": 20.0}


def test_kernels_of_several_streams_at_one_time_are_counted_once(one_step, reduced):
    (found,) = reduced(one_step((GEMM, 0, 50), (GEMM, 25, 75, 20), (ATTENTION, 50, 100, 21)))
    assert shares(found) == {"attention": 0.375, "gemm": 0.625}


def test_copies_count_where_nothing_else_runs(one_step, reduced):
    (found,) = reduced(one_step((GEMM, 0, 50), ("Memcpy DtoH (Device -> Pinned)", 40, 60, 20)))
    assert shares(found) == {"gemm": 0.5, "copy": 0.1, "gap": 0.4}


def test_a_kernel_that_reaches_into_the_next_step_is_shared_out(new_trace, reduced):
    trace = new_trace()
    for at in (0, 100, 200):
        trace.mark(PLAIN_STEP, at, at + 50)
    (found,) = reduced(trace.kernel(GEMM, 80, 150))
    assert shares(found) == {"gemm": 0.35, "gap": 0.65}


def test_steps_with_prompts_other_batches_or_waiting_are_left_out(new_trace, reduced):
    trace, at = new_trace(), 0.0
    work = [("execute_context_8(400)_generation_0(0)", 300)] + [(PLAIN_STEP, 100)] * 5
    work += [("execute_context_0(0)_generation_2(2)", 70)] * 2 + [(PLAIN_STEP, 9000), (PLAIN_STEP, 100)]
    for name, length in work:
        trace.mark(name, at, at + 50).kernel(GEMM, at, at + 50)
        at += length
    (found,) = reduced(trace)
    assert found.step_us == [100.0] * 5
    assert (found.steps.requests, found.steps.mixed, found.steps.other) == (4, 1, 4)
    assert shares(found) == {"gemm": 0.5, "gap": 0.5}


def test_a_step_that_several_streams_tell_is_one_step(new_trace, reduced):
    trace = new_trace()
    for at in (0, 100, 200):
        trace.mark(PLAIN_STEP, at, at + 50).mark(PLAIN_STEP, at + 10, at + 60, stream=20).kernel(GEMM, at, at + 50)
    (found,) = reduced(trace)
    assert found.step_us == [100.0, 100.0]


def test_operators_of_a_cpu_count_by_their_own_time(new_trace, reduced):
    trace = new_trace()
    for at in (0, 100):
        trace.note(PLAIN_STEP, at, at + 90)
        trace.op("vllm::unified_attention_with_output", at, at + 50).op("aten::softmax", at + 10, at + 30)
        trace.op("aten::linear", at + 50, at + 80).op("aten::addmm", at + 55, at + 80).op(
            "aten::copy_", at + 60, at + 70
        )
        trace.op("aten::copy_", at, at + 100, thread=2)
    (found,) = reduced(trace)
    assert not found.on_device
    assert shares(found) == {"attention": 0.5, "gemm": 0.2, "copy": 0.1, "gap": 0.2}


def test_kernels_count_where_a_device_was_recorded_and_operators_do_not(one_step, reduced):
    trace = one_step((GEMM, 0, 50))
    trace.events.insert(0, {**trace.events[0], "cat": "cpu_op", "name": "aten::linear", "ts": 0, "dur": 100})
    (found,) = reduced(trace.op("aten::linear", 0, 100))
    assert found.on_device and shares(found) == {"gemm": 0.5, "gap": 0.5}


def test_ranks_are_averaged_and_those_that_wait_in_collectives_are_seen(new_trace, reduced):
    ranks = []
    for rank, busy in enumerate((80, 40)):
        trace = new_trace(rank)
        for at in (0, 100):
            trace.mark(PLAIN_STEP, at, at + 90).kernel(GEMM, at, at + busy).kernel(REDUCE, at + busy, at + 100)
        ranks += reduced(trace, f"rank{rank}.json.gz")
    told = profile(ranks)
    assert told["ranks"] == 2 and [row["rank"] for row in told["by_rank"]] == [0, 1]
    assert told["shares"]["gemm"] == 0.6 and told["shares"]["all_reduce"] == 0.4
    assert told["waiting_for_ranks"] == pytest.approx(0.2)


def test_devices_of_one_merged_trace_are_ranks(new_trace, reduced):
    trace = new_trace()
    for device in (0, 1):
        for at in (0, 100):
            trace.mark(PLAIN_STEP, at, at + 90, device=device).kernel(GEMM, at, at + 50, device=device)
    assert [shares(found) for found in reduced(trace)] == [{"gemm": 0.5, "gap": 0.5}] * 2


def test_names_that_no_rule_knows_are_listed_with_their_time(one_step, reduced):
    found = reduced(one_step(("brand_new_kernel", 0, 30), (GEMM, 30, 100)))
    told = profile(found)
    assert told["names"] == {"gemm": {GEMM: 0.7}, "unknown": {"brand_new_kernel": 0.3}}
    assert told["shares"]["other"] == told["unknown_share"] == 0.3
    (finding,) = findings_of(found)
    assert finding.code == "kernel_names_unknown" and "brand_new_kernel" in finding.message


def test_a_trace_without_steps_gives_the_shares_of_all_of_it_and_says_so(new_trace, reduced):
    found = reduced(new_trace().kernel(GEMM, 0, 50).kernel(ATTENTION, 75, 100))
    assert shares(found[0]) == {"attention": 0.25, "gemm": 0.5, "gap": 0.25}
    assert profile(found)["step_ms"] is None
    assert [finding.code for finding in findings_of(found)] == ["trace_without_steps"]


def test_a_trace_without_work_is_refused(new_trace, reduced):
    with pytest.raises(FindingError) as problem:
        reduced(new_trace().mark(PLAIN_STEP, 0, 100))
    assert [finding.code for finding in problem.value.findings] == ["trace_empty"]


def test_events_of_a_strange_shape_are_passed_over(one_step, reduced):
    trace = one_step((GEMM, 0, 50))
    nan, infinite = float("nan"), float("inf")
    strange = [{"ts": "now"}, {"ts": 10**400}, {"dur": nan}, {"dur": infinite}, {"dur": -4}, {"dur": None}]
    strange += [{"name": 3}, {"cat": None}, {"ph": "i"}]
    trace.events += [{**trace.events[-1], **odd} for odd in strange]
    (found,) = reduced(trace)
    assert shares(found) == {"gemm": 0.5, "gap": 0.5}


def test_of_a_trace_that_is_too_long_the_first_events_are_used(steps_with_drafter, reduced, monkeypatch):
    monkeypatch.setattr(recording, "MOST_EVENTS", 30)
    found = reduced(steps_with_drafter(50))
    assert len(found[0].step_us) < 10
    assert "trace_too_long" in [finding.code for finding in findings_of(found)]


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_trace_ends_in_figures_or_findings(steps_with_drafter, tmp_path, seed):
    draw = random.Random(seed)
    content = bytearray(json.dumps(steps_with_drafter(6).content()).encode())
    for _ in range(draw.choice((1, 5, 60))):
        content[draw.randrange(len(content))] = draw.choice(b'{}[]",:0\x00\xffe-')
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(bytes(content)) if seed % 2 else bytes(content))
    try:
        told = profile(timelines(path))
    except FindingError as problem:
        assert {finding.code for finding in problem.findings} <= {"trace_malformed", "trace_empty"}
    else:
        assert sum(told["shares"].values()) == pytest.approx(1.0, abs=1e-3)
