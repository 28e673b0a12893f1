from __future__ import annotations

import pytest

from eagle3_backend.engines.acceptance import (
    FIRST_POSITION,
    LATER_POSITIONS,
    LOW,
    NOTHING,
    Bucket,
    compare,
    judge,
    judge_context,
    read_measurement,
    reconcile,
    suspects,
)
from eagle3_backend.engines.metrics import Drafting


def drafted(*rates, drafts=1000.0):
    places = tuple(rate * drafts for rate in rates)
    return Drafting(drafts, drafts * len(rates), sum(places), places)


def codes(findings):
    return [finding.code for finding in findings]


def test_healthy_figures_raise_nothing():
    assert judge(drafted(0.8, 0.6, 0.4)) == []
    assert suspects(drafted(0.8, 0.6, 0.4)) == ()


def test_nothing_accepted_is_a_collapse_with_its_suspects_in_order():
    (finding,) = judge(drafted(0.0, 0.0, 0.0))
    assert (finding.code, finding.severity.value) == ("acceptance_collapse", "error")
    assert "1.00" in finding.message
    assert suspects(drafted(0.0, 0.0, 0.0)) == NOTHING
    assert NOTHING[0] == "spec_algorithm_mismatch"


def test_no_drafts_are_no_verdict():
    assert judge(Drafting(0, 0, 0)) == []
    assert suspects(drafted(0.0, 0.0, drafts=20)) == ()


def test_the_shape_of_low_figures_names_different_suspects():
    assert suspects(drafted(0.1, 0.05, 0.01)) == LOW
    assert set(FIRST_POSITION) <= set(LOW)
    assert suspects(drafted(0.59, 0.18, 0.03)) == LATER_POSITIONS


@pytest.mark.parametrize(
    "counted",
    [
        Drafting(100, 300, 150, (80.0, 40.0, 10.0)),
        Drafting(100, 900, 130, (80.0, 40.0, 10.0)),
        Drafting(100, 300, 130, (40.0, 80.0, 10.0)),
    ],
)
def test_figures_that_contradict_each_other_are_told(counted):
    assert codes(judge(counted)) == ["metric_labels_inconsistent"]


def test_equal_depth_is_seen_behind_different_spellings():
    left = read_measurement({"engine": "sglang", "num_steps": 3, "topk": 1, "num_draft_tokens": 4, "accept_length": 2})
    right = read_measurement({"engine": "vllm", "num_speculative_tokens": 3, "mean_acceptance_length": 2.5})
    assert (left.depth, right.depth, left.length) == (3, 3, 2.0)
    assert compare(left, right) == []
    assert read_measurement({"engine": "sglang", "num_draft_tokens": 4}).depth == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"num_speculative_tokens": 4}, "acceptance_depth_mismatch"),
        ({"temperature": 0.6}, "acceptance_temperature"),
        ({"dataset": "gsm8k"}, "acceptance_prompts_differ"),
        ({"max_new_tokens": 64}, "acceptance_output_length_differs"),
        ({"concurrency": 8}, "acceptance_concurrency_differs"),
        ({"includes_bonus": False}, "acceptance_definition_differs"),
    ],
)
def test_every_condition_that_differs_is_a_warning(change, code):
    values = {
        "engine": "vllm",
        "num_speculative_tokens": 3,
        "temperature": 0,
        "dataset": "mt_bench",
        "max_new_tokens": 256,
        "concurrency": 1,
        "mean_acceptance_length": 2.7,
    }
    findings = compare(read_measurement(values), read_measurement({**values, **change}))
    assert codes(findings) == [code]
    assert findings[0].severity.value == "warning"


def test_a_step_in_context_is_told_from_a_slope():
    step = [Bucket(until, drafted(rate)) for until, rate in ((512, 0.8), (2048, 0.79), (8192, 0.1))]
    slope = [Bucket(until, drafted(rate)) for until, rate in ((512, 0.8), (2048, 0.55), (8192, 0.3))]
    assert "past 2048 tokens" in judge_context(step)[0].message
    assert "steadily" in judge_context(slope)[0].message
    assert judge_context([Bucket(512, drafted(0.8)), Bucket(8192, drafted(0.7))]) == []


def test_counters_and_log_must_tell_the_same():
    assert reconcile(drafted(0.8, 0.6), drafted(0.8, 0.6, drafts=950.0)) == []
    assert codes(reconcile(drafted(0.8, 0.6), drafted(0.4, 0.1))) == ["metrics_disagree"]
    assert reconcile(drafted(0.8, 0.6), drafted(0.4, 0.1, drafts=100.0)) == []
