from __future__ import annotations

from eagle3_backend.engines.answers import Answer, Prompt, Steps
from eagle3_backend.engines.raw_text import did_not_fail, raw_text_control


def answers(accepted: list[tuple[int, ...]], looping: tuple[int, ...] = ()) -> list[Answer]:
    made = []
    for number, steps in enumerate(accepted):
        tokens = (1, 2) * 20 if number in looping else tuple(range(40))
        prompt = Prompt(str(number), "file", f"Say {number}.")
        made.append(Answer(prompt, (), tokens, "", "stop", 1.0, Steps.of_order(steps), len(tokens)))
    return made


CHATS = [(2, 1, 2), (1, 2, 2), (3, 1, 1), (2, 2, 2)]


def test_raw_text_that_is_drafted_worse_fails_as_it_must() -> None:
    found = raw_text_control(answers(CHATS), answers([(0, 0, 1)] * 4), 200, 1)
    assert found["failed_as_it_must"] is True
    assert (found["raw"], found["chat"], found["left_out"]) == (1.3333, 2.75, 0)
    assert found["difference"]["high"] < 0 and found["difference"]["prompts"] == 4


def test_raw_text_that_is_drafted_as_well_does_not_fail_and_is_told() -> None:
    found = raw_text_control(answers(CHATS), answers([(3, 3, 3)] * 4), 200, 1)
    assert found["failed_as_it_must"] is False
    assert did_not_fail(found).code == "control_did_not_fail"


def test_too_few_prompts_prove_neither() -> None:
    found = raw_text_control(answers(CHATS), answers([(0, 0, 0), (3, 3, 3), (1, 2, 2), (2, 2, 1)]), 200, 1)
    assert found["failed_as_it_must"] is None


def test_prompts_with_a_loop_on_either_side_are_left_out() -> None:
    found = raw_text_control(answers(CHATS, looping=(0,)), answers([(0, 0, 1)] * 4, looping=(1,)), 200, 1)
    assert found["left_out"] == 2 and found["difference"]["prompts"] == 2
    assert raw_text_control(answers(CHATS), [], 200, 1) is None


def test_of_a_chat_as_many_tokens_count_as_the_raw_text_was_given() -> None:
    """A chat that is drafted well only later is no better than raw text in its beginning."""
    raw = [
        Answer(one.prompt, (), one.tokens[:3], "", "length", 1.0, one.steps, 3) for one in answers([(1, 0)] * 4)
    ]  # fmt: skip
    found = raw_text_control(answers([(1, 0, 3, 3, 3, 3)] * 4), raw, 200, 1)
    assert found["chat"] == found["raw"] == 1.5
