from __future__ import annotations

import pytest

from eagle3_backend.pipeline.rows import assistant_message
from eagle3_backend.stages.answers import AnswerFile, mode_of, read_rows, reason_to_drop, row_id

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("content", "finish", "keep_cut", "reason"),
    [
        ("Fine.", "stop", False, ""),
        ("Fine", "length", True, ""),
        ("Fine", "length", False, "finish_reason_length"),
        ("  \n", "stop", True, "empty_response"),
        ("<think>so much to say", "length", True, "reasoning_unclosed"),
        ("<think>done</think>\n\n", "stop", True, "empty_response"),
        ("<think>done</think>\n\nFine.", "stop", True, ""),
    ],
)
def test_an_answer_is_dropped_for_the_reason_that_makes_it_useless(content, finish, keep_cut, reason):
    assert reason_to_drop({"content": content}, finish, keep_cut) == reason


def test_full_reasoning_without_an_answer_is_empty():
    message = assistant_message({"content": None, "reasoning_content": "All of it."})
    assert reason_to_drop(message, "stop", True) == "empty_response"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_under_the_name_that_the_engine_gave_it(field):
    message = assistant_message({"content": "Fine.", field: "hm", "tool_calls": []})
    assert message == {"role": "assistant", "content": "Fine.", field: "hm"}
    assert mode_of(message) == "thinking"


def test_inline_reasoning_counts_as_thinking_and_plain_answers_do_not():
    assert mode_of({"content": "<think>hm</think>Fine."}) == "thinking"
    assert mode_of({"content": "Fine."}) == "plain"


@pytest.mark.parametrize(
    "other",
    [
        ([{"role": "user", "content": "Ho"}], {"temperature": 0.0}, "r1", "t"),
        (MESSAGES, {"temperature": 0.7}, "r1", "t"),
        (MESSAGES, {"temperature": 0.0}, "r2", "t"),
        (MESSAGES, {"temperature": 0.0}, "r1", "u"),
    ],
)
def test_whatever_decides_an_answer_decides_its_id(other):
    assert row_id(*other) != row_id(MESSAGES, {"temperature": 0.0}, "r1", "t")
    assert row_id(*other) == row_id(*other)


def test_rows_survive_a_writer_that_was_killed_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_bytes(b'{"id":"a"}\n{"id":"b"}\n{"id":"c","te')
    file = AnswerFile(path)
    assert set(file.rows) == {"a", "b"}
    file.append({"id": "c"})
    file.close()
    assert [row["id"] for row in read_rows(path)] == ["a", "b", "c"]


def test_a_row_is_never_written_twice_nor_after_closing(tmp_path):
    file = AnswerFile(tmp_path / "train.jsonl")
    file.append({"id": "a"})
    file.append({"id": "a"})
    file.close()
    file.append({"id": "b"})
    assert [row["id"] for row in read_rows(tmp_path / "train.jsonl")] == ["a"]
