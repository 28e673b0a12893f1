from __future__ import annotations

import pytest

from eagle3_backend.pipeline.rows import (
    answer_faults,
    answer_text,
    judge_answers,
    judge_texts,
    judge_tokens,
    template_findings,
)

HEADER, END = "<|a|>", "<|e|>"


def codes(judged) -> list[str]:
    return [finding.code for finding in judged.findings]


def tokens(mask, ids=(1, 2, 3, 4)):
    return {"id": "r", "input_ids": list(ids), "loss_mask": mask}


class TestAnswers:
    @pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
    def test_reasoning_goes_before_the_answer_in_one_block(self, field):
        assert answer_text({"content": "4.", field: "2 + 2"}) == "<think>\n2 + 2\n</think>\n\n4."

    @pytest.mark.parametrize("reasoning", [None, ""])
    def test_no_reasoning_adds_nothing(self, reasoning):
        assert answer_text({"content": "4.", "reasoning": reasoning}) == "4."

    def test_a_block_that_is_there_already_is_not_doubled(self):
        said = "<think>a</think>b"
        assert answer_text({"content": said, "reasoning": "a"}) == said

    def test_braces_in_what_was_said_are_left_alone(self):
        text = answer_text({"content": "{reasoning}", "reasoning": "{content}"})
        assert text == "<think>\n{content}\n</think>\n\n{reasoning}"

    @pytest.mark.parametrize(
        ("content", "finish", "faults"),
        [
            ("Yes.", "stop", ()),
            (None, "stop", ("empty_response",)),
            ("<think>a</think>\n ", "stop", ("empty_response",)),
            ("<think>a", "stop", ("reasoning_unclosed",)),
            ("Ye", "length", ("finish_reason_length",)),
            ("", "length", ("finish_reason_length", "empty_response")),
        ],
    )
    def test_what_is_no_training_row(self, content, finish, faults):
        assert answer_faults({"content": content}, finish) == faults

    def test_rows_are_kept_and_dropped_by_id(self):
        rows = [
            {"id": name, "choices": [{"finish_reason": finish, "message": {"content": "x"}}]}
            for name, finish in (("a", "stop"), ("b", "length"))
        ]
        judged = judge_answers(rows)
        assert codes(judged) == ["finish_reason_length"]
        assert (judged.values["kept"], judged.values["dropped"]) == (["a"], ["b"])


class TestTokens:
    @pytest.mark.parametrize("mask", [[0, 0, 1, 1], [[2, 4]]])
    def test_masks_are_bits_or_spans(self, mask):
        judged = judge_tokens([tokens(mask)])
        assert codes(judged) == []
        assert judged.values["supervised_tokens"] == 2

    @pytest.mark.parametrize("mask", [[0, 0, 0, 1], [[3, 4]]])
    def test_a_row_whose_answer_is_cut_away_is_told_by_id(self, mask):
        judged = judge_tokens([tokens(mask), tokens([0, 1, 1, 1])], max_length=3)
        assert [(finding.code, finding.actual) for finding in judged.findings] == [("sample_fully_masked", ["r"])]
        assert judged.values["supervised_tokens"] == 2

    def test_no_supervision_at_all_is_an_error(self):
        assert codes(judge_tokens([tokens([0, 0, 0, 0]), tokens([])])) == ["loss_mask_all_zero"]

    def test_a_mask_over_everything_covers_prompts(self):
        assert codes(judge_tokens([tokens([1, 1, 1, 1])])) == ["loss_mask_covers_prompt"]

    @pytest.mark.parametrize(("bos", "found"), [(1, ["bos_duplicated"]), (2, []), (None, [])])
    def test_two_begins_are_an_error(self, bos, found):
        assert codes(judge_tokens([tokens([0, 0, 0, 1], ids=(1, 1, 2, 3))], bos=bos)) == found


class TestTexts:
    def test_what_an_assistant_says_is_supervised(self):
        judged = judge_texts([{"text": f"Hi{HEADER}Hello{END}"}, {"text": "Hi"}], HEADER, END)
        assert (judged.values["supervised_samples"], codes(judged)) == (1, ["sample_fully_masked"])

    def test_an_answer_without_its_end_counts_to_the_end_of_the_text(self):
        assert judge_texts([{"text": f"{HEADER}Hello"}], HEADER, END).values["supervised_samples"] == 1

    def test_a_header_that_occurs_nowhere_is_an_error(self):
        assert codes(judge_texts([{"text": "Hi"}, {"text": HEADER}], HEADER, END)) == ["loss_mask_all_zero"]


@pytest.mark.parametrize("tag", ["{% generation %}", "{%- generation -%}", "{%generation%}"])
def test_a_generation_block_in_any_spelling_is_seen(tag):
    assert template_findings("t.jinja", f"a{tag}b") == []
    assert [finding.path for finding in template_findings("t.jinja", "a {% if generation %} b")] == ["t.jinja"]
