from __future__ import annotations

import pytest

from eagle3_backend.engines.answers import Answer, Prompt, Steps
from eagle3_backend.engines.cells import Pair
from eagle3_backend.engines.measured import Measured, acceptance, findings_of
from eagle3_backend.engines.metrics import Drafting
from eagle3_backend.engines.statistics import Interval
from eagle3_backend.stages.bench_report import StepCost, by_depth, lossless, recommend, speed


def answer(name: str, tokens: list[int], seconds: float = 1.0, accepted: tuple[int, ...] = ()) -> Answer:
    prompt, steps = Prompt(name, "file", f"Say {name}."), Steps.of_order(accepted)
    return Answer(prompt, (1, 2, 3), tuple(tokens), "", "stop", seconds, steps, len(tokens))


def measured(steps: list[tuple[int, ...]], name: str = "in_domain", **counted: object) -> Measured:
    """A measurement whose counters agree with its requests, but for what ``counted`` says."""
    flat = [accepted for each in steps for accepted in each]
    positions = tuple(float(sum(accepted > place for accepted in flat)) for place in range(3))
    counters = {
        "drafts": float(len(flat)),
        "drafted": 3.0 * len(flat),
        "accepted": float(sum(flat)),
        "by_position": positions,
    }
    answers = [answer(str(number), list(range(40)), accepted=each) for number, each in enumerate(steps)]
    return Measured(name, answers, Drafting(**{**counters, **counted}), {}, 3)


STEPS = [(3, 1, 0, 2), (0, 0, 1), (2, 2, 3, 1, 0)]


def test_acceptance_comes_from_the_counters_with_an_interval_over_prompts() -> None:
    found = acceptance(measured(STEPS), resamples=200, seed=0)
    assert found["mean"] == 2.25
    assert found["low"] < 2.25 < found["high"]
    assert (found["prompts"], found["steps"]) == (3, 12)
    assert found["by_position"] == [0.6667, 0.4167, 0.1667]


def test_counters_that_agree_with_the_requests_raise_no_finding() -> None:
    assert findings_of(measured(STEPS)) == []


@pytest.mark.parametrize("counted", [{"drafts": 13.0}, {"accepted": 16.0}, {"by_position": (8.0, 5.0, 1.0)}])
def test_counters_that_differ_from_the_requests_are_told(counted: dict[str, object]) -> None:
    assert [finding.code for finding in findings_of(measured(STEPS, **counted))] == ["metrics_disagree"]


def test_an_engine_that_never_drafts_is_an_error() -> None:
    idle = measured([()], drafts=0.0, drafted=0.0, accepted=0.0)
    (finding,) = findings_of(idle)
    assert (finding.code, finding.severity.value) == ("no_drafts_counted", "error")


def test_a_drafter_whose_tokens_are_never_accepted_is_told() -> None:
    assert [finding.code for finding in findings_of(measured([(0,) * 20]))] == ["acceptance_collapse"]


def test_looping_answers_void_a_good_figure() -> None:
    loops = measured(STEPS)
    looping = Measured(
        "published",
        [answer(each.prompt.id, [7, 8] * 30, accepted=each.steps.in_order) for each in loops.answers],
        loops.counters,
        {},
        3,
    )
    assert [finding.code for finding in findings_of(looping)] == ["acceptance_degenerate_output"]


def pairs(ratio: float, steps: int) -> list[Pair]:
    return [
        Pair(answer("a", [0] * 64, 2.0 / ratio, (1,) * steps), answer("a", [0] * 64, 2.0)),
        Pair(answer("b", [0] * 32, 1.0 / ratio, (1,) * (steps // 2)), answer("b", [0] * 32, 1.0)),
    ]


def test_speed_is_a_ratio_of_tokens_a_second() -> None:
    assert speed(pairs(1.6, 30), resamples=50, seed=0).mean == pytest.approx(1.6)


def test_the_cost_of_a_step_lies_between_that_of_a_plain_token_and_the_measured_one() -> None:
    cost = StepCost(plain=0.03, drafted=0.06, depth=3)
    assert [cost.at(depth) for depth in range(4)] == pytest.approx([0.03, 0.04, 0.05, 0.06])


def test_step_cost_counts_the_prefill_as_a_step() -> None:
    cost = StepCost.of(pairs(1.0, 30), depth=3)
    assert cost.plain == pytest.approx(3.0 / 96)
    assert cost.drafted == pytest.approx(3.0 / (30 + 15 + 2))


def test_shallower_depths_are_marked_as_estimates() -> None:
    rows = by_depth([measured(STEPS)], StepCost(0.03, 0.06, 3))
    assert [row["depth"] for row in rows] == [0, 1, 2, 3]
    assert [row["acceptance"] for row in rows] == ["measured", "estimated", "estimated", "measured"]
    assert rows[0]["speedup_c1"] == {"in_domain": 1.0}
    assert rows[3]["acceptance_length"] == {"in_domain": 2.25}


def test_without_acceptance_by_position_there_is_no_depth_between_none_and_the_measured_one() -> None:
    found = measured(STEPS, by_position=())
    rows = by_depth([found], StepCost(0.03, 0.031, 3))
    assert [(row["depth"], row["acceptance_length"]["in_domain"]) for row in rows] == [(0, 1.0), (3, 2.25)]
    assert recommend(rows, found, CERTAIN, resamples=100, seed=0)[0] == 3


def recommended(cost: StepCost, steps: list[tuple[int, ...]], speed: Interval) -> tuple[int, str]:
    found = measured(steps)
    return recommend(by_depth([found], cost), found, speed, resamples=200, seed=0)


CERTAIN, UNCERTAIN = Interval(1.5, 1.4, 1.6, 12), Interval(1.1, 0.9, 1.3, 12)


def test_the_recommended_depth_is_the_fastest_one() -> None:
    cheap, dear = StepCost(0.03, 0.031, 3), StepCost(0.03, 0.3, 3)
    middle = StepCost(0.03, 0.03 * (1 + 3 * 0.3), 3)
    assert [recommended(cost, STEPS, CERTAIN)[0] for cost in (cheap, middle, dear)] == [3, 2, 0]
    assert recommended(cheap, STEPS, CERTAIN)[1].startswith("depth 3 has the highest estimated speed-up (in_domain)")


def test_no_depth_is_recommended_where_next_to_nothing_is_accepted_however_fast_it_seemed() -> None:
    depth, reason = recommended(StepCost(0.03, 0.0125, 3), [(0,) * 20] * 5, Interval(2.4, 2.0, 2.8, 12))
    assert depth == 0 and "acceptance length clearly above 1" in reason


def test_a_recommendation_says_when_the_measured_speed_proves_nothing() -> None:
    assert "includes 1.0" in recommended(StepCost(0.03, 0.031, 3), STEPS, UNCERTAIN)[1]
    assert "includes 1.0" not in recommended(StepCost(0.03, 0.031, 3), STEPS, CERTAIN)[1]


def test_no_estimated_speed_up_exceeds_its_acceptance_length() -> None:
    for row in by_depth([measured(STEPS)], StepCost(plain=0.03, drafted=0.0125, depth=3)):
        assert row["speedup_c1"]["in_domain"] <= row["acceptance_length"]["in_domain"]


def test_losslessness_counts_prompts_whose_every_answer_has_the_same_token_ids() -> None:
    plain = [answer("a", [1, 2]), answer("b", [3, 4])]
    drafted = [[answer("a", [1, 2]), answer("a", [1, 2])], [answer("b", [3, 4]), answer("b", [3, 5])]]
    prompts = [each.prompt for each in plain]
    assert lossless(dict(zip(prompts, plain, strict=True)), dict(zip(prompts, drafted, strict=True))) == 1
