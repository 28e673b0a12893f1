from __future__ import annotations

import json

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.conversations import Conversation, parse, read_file
from eagle3_backend.stages import prompts


@pytest.fixture
def write(tmp_path):
    def write(name, records):
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    return write


def questions(count, kind="plain"):
    return [{"prompt": f"What is {kind} thing number {number} good for?"} for number in range(count)]


@pytest.mark.parametrize(
    "record",
    [
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}]},
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        {"turns": ["Hi"]},
        {"prompt": "Hi"},
        {"question": "Hi"},
    ],
)
def test_each_format_gives_what_the_user_says(record):
    assert parse(record, "file").turns == ("Hi",)


def test_a_system_message_is_kept_apart_from_the_turns():
    record = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    conversation = parse(record, "file")
    assert (conversation.system, conversation.turns) == ("Be brief.", ("Hi",))
    assert conversation.to_json()["system"] == "Be brief."


@pytest.mark.parametrize(
    "record",
    [
        {"text": "Hi"},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "42"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"turns": [1]},
        {"prompt": "  "},
        "Hi",
        7,
    ],
)
def test_what_is_no_conversation_is_none(record):
    assert parse(record, "file") is None


TOLD = [("user", "Hi"), ("assistant", "Yes?"), ("user", "Bye"), ("assistant", "Bye.")]


def test_answers_are_kept_where_each_turn_has_one():
    messages = [{"role": role, "content": text} for role, text in TOLD]
    conversation = parse({"messages": [{"role": "system", "content": "Be brief."}, *messages]}, "file")
    assert conversation.to_json()["answers"] == [{"role": "assistant", "content": text} for text in ("Yes?", "Bye.")]
    shares = [{"from": {"user": "human"}.get(role, "gpt"), "value": text} for role, text in TOLD]
    assert parse({"conversations": shares}, "file").answers == conversation.answers


@pytest.mark.parametrize("name", ["response", "answer", "completion"])
def test_a_plain_record_may_bring_its_answer(name):
    assert parse({"prompt": "Hi", name: "Yes?"}, "file").answers == ({"role": "assistant", "content": "Yes?"},)


@pytest.mark.parametrize("kept", [slice(3), slice(1, None), slice(0, 4, 2)])
def test_a_conversation_that_lacks_an_answer_brings_none(kept):
    messages = [{"role": role, "content": text} for role, text in TOLD[kept]]
    conversation = parse({"messages": messages}, "file")
    assert conversation.turns and "answers" not in conversation.to_json()


def test_reasoning_stays_beside_its_answer_and_other_fields_do_not():
    spoken = {"role": "assistant", "content": "Yes?", "reasoning_content": "hm", "weight": 1}
    answers = parse({"messages": [{"role": "user", "content": "Hi"}, spoken]}, "file").answers
    assert answers == ({"role": "assistant", "content": "Yes?", "reasoning_content": "hm"},)


def test_a_json_array_is_read_like_lines(tmp_path):
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([{"conversations": [{"from": "human", "value": "Hi"}]}] * 2, indent=1))
    assert len(read_file(path)[0]) == 2


def test_a_bad_line_is_named_and_costs_no_other(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "One"}\n{"prompt": \n{"prompt": "Two"}\n')
    found, bad = read_file(path)
    assert [row.turns for row in found] == [("One",), ("Two",)]
    assert [(finding.code, finding.path) for finding in bad] == [("prompt_record_invalid", "prompts.jsonl:line 2")]


def test_a_file_that_is_not_utf8_names_the_byte(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'{"prompt": "caf\xe9"}\n')
    with pytest.raises(FindingError, match="0xe9"):
        read_file(path)


def test_line_separators_inside_a_string_do_not_split_a_record(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one\u2028two"}\n', encoding="utf-8")
    assert read_file(path)[0][0].turns == ("one\u2028two",)


def test_the_same_prompt_has_the_same_id_whatever_its_case_spacing_or_file():
    one = Conversation("a", "first", ("What is a  fjord?",))
    other = Conversation("b", "second", (" what is a FJORD?",))
    assert one.id == other.id


def run(attempt, files, published=(), published_names=(), **parameters):
    inputs = {"files": list(files), "published": list(published)}
    context = attempt("prompts", inputs, published=published_names, **parameters)
    prompts.run(context)
    return context


def test_sets_are_written_apart_and_counted(attempt, write):
    files = [write("one.jsonl", questions(30)), write("two.jsonl", questions(10, "other"))]
    context = run(attempt, files, [write("exam.jsonl", questions(5, "unseen"))], holdout=8)
    sizes = {name: len(context.rows(f"{name}.jsonl")) for name in ("train", "holdout", "published")}
    assert sizes == {"train": 32, "holdout": 8, "published": 5}
    assert {name: context.summary[name] for name in sizes} == sizes


def test_the_hold_out_takes_from_each_file_in_proportion(attempt, write):
    files = [write("one.jsonl", questions(30)), write("two.jsonl", questions(10, "other"))]
    held = run(attempt, files, holdout=8).rows("holdout.jsonl")
    assert [row["file"] for row in held].count("one") == 6


def test_order_and_hold_out_depend_on_the_seed_and_not_on_the_files_order(attempt, write):
    files = [write("one.jsonl", questions(20)), write("two.jsonl", questions(20, "other"))]
    first = run(attempt, files, holdout=6)
    rows = [first.rows(name) for name in ("train.jsonl", "holdout.jsonl")]
    again = run(attempt, files[::-1], holdout=6)
    assert [again.rows(name) for name in ("train.jsonl", "holdout.jsonl")] == rows
    other = run(attempt, files, holdout=6, seed=18)
    assert other.rows("train.jsonl") != rows[0]


def test_a_limit_shortens_the_training_set_and_leaves_the_hold_out_alone(attempt, write):
    files = [write("one.jsonl", questions(40))]
    held = run(attempt, files, holdout=6).rows("holdout.jsonl")
    short = run(attempt, files, holdout=6, limit=10)
    assert len(short.rows("train.jsonl")) == 10
    assert short.rows("holdout.jsonl") == held


def test_doubles_and_overlong_prompts_are_dropped_and_counted(attempt, write):
    records = [*questions(10), {"prompt": "what is PLAIN thing  number 3 good for?"}, {"prompt": "x" * 50}, {"a": 1}]
    context = run(attempt, [write("one.jsonl", records)], holdout=2, max_characters=45)
    assert context.summary["dropped"] == {"duplicate": 1, "overlong": 1, "invalid": 1}
    assert context.codes() == ["prompt_record_invalid"]


def test_a_prompt_that_is_measured_on_is_never_trained_on(attempt, write):
    exam = write("exam.jsonl", [{"prompt": "What is PLAIN thing number 4 good for?"}])
    context = run(attempt, [write("one.jsonl", questions(10))], [exam], holdout=2)
    texts = [turn for name in ("train", "holdout") for row in context.rows(f"{name}.jsonl") for turn in row["turns"]]
    assert not any("number 4 " in text for text in texts)
    assert context.summary["dropped"]["published"] == 1


def test_thirteen_words_on_end_of_a_published_prompt_keep_a_training_prompt_out(attempt, write):
    shared = "a farmer has seventeen sheep and all but nine of them run away today"
    exam = write("exam.jsonl", [{"prompt": f"Listen: {shared}, so how many are left?"}])
    own = write("one.jsonl", [*questions(5), {"prompt": f"Once {shared}. Tell me a story about it."}])
    assert run(attempt, [own], [exam], holdout=1).summary["dropped"]["published"] == 1


def test_published_prompts_are_named_by_their_file(attempt, write):
    exam = write("exam.jsonl", [{"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Shorter."]}])
    row = run(attempt, [write("one.jsonl", questions(5))], [exam]).rows("published.jsonl")[0]
    assert (row["source"], row["turns"]) == ("exam", ["Write a poem.", "Shorter."])


def test_sets_that_go_by_a_name_are_read_where_the_stage_runs(attempt, write, hub, monkeypatch):
    hub.write("data/test.jsonl", *({"goal": f"Reach number {number}.", "note": "x"} for number in range(3)))
    monkeypatch.setenv("HF_TOKEN", "hf_not-to-be-told")
    names = ("hub:lab/exam:test:goal", "long_context")
    context = run(attempt, [write("one.jsonl", questions(5))], published_names=names)
    sources = [row["source"] for row in context.rows("published.jsonl")]
    assert (sources.count("exam-test"), sources.count("long_context")) == (3, 24)
    assert context.summary["data_sets"] == [f"hub:lab/exam@{'4f3c' * 10}:test:goal"]
    trained = [turn for name in ("train", "holdout") for row in context.rows(f"{name}.jsonl") for turn in row["turns"]]
    assert (context.summary["turns"], context.summary["characters"]) == (5, len("".join(trained)))
    files = [path for folder in (context.run_directory, context.output) for path in folder.rglob("*.*")]
    assert files and not any(b"hf_not-to-be-told" in path.read_bytes() for path in files)


def test_an_empty_prompt_set_is_a_finding_that_says_why(attempt, write):
    with pytest.raises(FindingError) as raised:
        run(attempt, [write("one.jsonl", [{"a": 1}, {"prompt": "x" * 99}])], max_characters=10)
    finding = raised.value.findings[0]
    assert finding.code == "prompts_empty"
    assert "1 invalid" in finding.message
    assert "1 overlong" in finding.message


def test_one_conversation_at_least_stays_for_training(attempt, write):
    context = run(attempt, [write("one.jsonl", questions(3))], holdout=48)
    assert len(context.rows("train.jsonl")) == 1
