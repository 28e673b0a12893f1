from __future__ import annotations

from eagle3_backend.engines.answers import Prompt, Steps, chat_body, counted_of, read_answer

PROMPT = Prompt("1", "file", "Why?")


def sglang(**meta):
    choice = {"message": {"content": "So."}, "finish_reason": "stop", "meta_info": meta}
    return read_answer("sglang", PROMPT, {"choices": [choice], "usage": {"completion_tokens": 9}}, 1.0)


def vllm(*accepted):
    choice = {"message": {"content": "So."}, "finish_reason": "stop", "token_ids": [1, 2]}
    metrics = {"speculative_decoding": {"per_step_accepted": list(accepted)}}
    return read_answer("vllm", PROMPT, {"choices": [choice], "metrics": metrics}, 1.0)


def test_sglang_is_asked_for_its_drafting_and_vllm_tells_it_anyway():
    assert chat_body("sglang", "m", PROMPT, 8)["return_meta_info"] is True
    assert "return_meta_info" not in chat_body("vllm", "m", PROMPT, 8)


def test_a_histogram_of_steps_counts_as_the_steps_do():
    steps = sglang(spec_verify_ct=4, spec_num_correct_drafts=5, spec_correct_drafts_histogram=[1, 2, 0, 1]).steps
    order = vllm(3, 0, 1, 1).steps
    assert (steps.count, steps.accepted, steps.histogram) == (order.count, order.accepted, order.histogram)
    assert [steps.within(depth) for depth in range(4)] == [order.within(depth) for depth in range(4)] == [0, 3, 4, 5]
    assert (steps.in_order, order.in_order) == ((), (3, 0, 1, 1))


def test_a_histogram_that_contradicts_the_sums_is_left_out():
    steps = sglang(spec_verify_ct=4, spec_num_correct_drafts=5, spec_correct_drafts_histogram=[1, 2]).steps
    assert steps == Steps(4, 5)


def test_answers_add_up_and_positions_need_all_of_them():
    told = counted_of([vllm(3, 0, 1, 1), vllm(2), vllm()], 3)
    assert (told.drafts, told.drafted, told.accepted, told.by_position) == (5.0, 15.0, 7.0, (4.0, 2.0, 1.0))
    assert not told.contradicts_itself
    mixed = counted_of([vllm(1), sglang(spec_verify_ct=2, spec_num_correct_drafts=1)], 3)
    assert (mixed.drafts, mixed.accepted, mixed.by_position) == (3.0, 2.0, ())


def test_what_an_engine_does_not_tell_stays_empty():
    answer = sglang()
    assert (answer.steps, answer.tokens, answer.generated) == (Steps(), (), 9)
