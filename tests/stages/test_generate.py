"""The generate and extract stages with a stand-in for the engine (`stand_in_target.py`): no model, real files."""

from __future__ import annotations

import json
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import disk, extract, generate  # noqa: E402
from eagle3_backend.stages.context import Stopped  # noqa: E402
from eagle3_backend.stages.store import open_store  # noqa: E402

pytestmark = pytest.mark.torch

FACTS = {
    "model": "/models/tiny",
    "revision": "r1",
    "layers": 6,
    "hidden_size": 8,
    "aux_layers": [2, 3],
    "template_hash": "t",
    "tokenizer_hash": "k",
}
TRAIN = [["First question"], ["Second question", "And then?"], ["Third\u2028question"]]
HELD = [["Held question"]]


@pytest.fixture
def inputs(tmp_path):
    """A target in small and a prompt set: one prompt with two turns, one with a line separator in its text."""
    target, prompts = tmp_path / "target", tmp_path / "prompts"
    target.mkdir()
    prompts.mkdir()
    (target / "facts.json").write_text(json.dumps(FACTS))
    for name, turns in (("train", TRAIN), ("holdout", HELD)):
        rows = [{"id": f"{name}{n}", "source": "test", "file": "f", "turns": texts} for n, texts in enumerate(turns)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (prompts / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return {"target": target, "prompts": prompts}


@pytest.fixture
def answered(attempt, stand_in, inputs):
    """Run generate; ``ways`` of the stand-in, then parameters."""

    def run(ways="", **parameters):
        context = attempt("generate", inputs, stand_in(WAYS=ways), **{"max_new_tokens": 64, **parameters})
        generate.run(context)
        return context

    return run


def starts(context):
    return sum(line["text"].startswith("Starting the engine") for line in context.lines("note"))


def test_a_row_holds_the_exact_ids_and_masks_what_was_sampled(answered):
    row = next(row for row in answered().rows("train.jsonl") if row["prompt"] == "train0")
    prompt = b"user:First question\nassistant:"
    answer = b"noitseuq tsriF\x00"
    assert bytes(row["input_ids"]) == prompt + answer
    assert row["loss_mask"] == [[len(prompt), len(prompt) + len(answer)]]
    assert row["finish_reason"] == "stop"


def test_each_assistant_turn_is_a_row_with_the_history_before_it(answered):
    rows = [row for row in answered().rows("train.jsonl") if row["prompt"] == "train1"]
    assert [row["turn"] for row in rows] == [0, 1]
    assert bytes(rows[1]["input_ids"]).startswith(b"user:Second question\nassistant:noitseuq dnoceS\nuser:And then?")
    assert [message["role"] for message in rows[1]["messages"]] == ["user", "assistant", "user", "assistant"]


def test_reasoning_goes_back_to_the_target_in_its_own_field(answered):
    rows = [row for row in answered("think").rows("train.jsonl") if row["prompt"] == "train1"]
    assert b"assistant:hmnoitseuq dnoceS" in bytes(rows[1]["input_ids"])
    assert rows[0]["messages"][-1]["reasoning_content"] == "hm"
    assert {row["mode"] for row in rows} == {"thinking"}


def test_states_of_every_row_lie_beside_it_and_nothing_else_is_left(answered):
    context = answered()
    rows = context.rows("train.jsonl") + context.rows("holdout.jsonl")
    assert {path.stem for path in (context.output / "captures").iterdir()} == {row["id"] for row in rows}
    assert not (context.output / "raw").exists()
    assert context.summary["train"] == 4
    assert context.summary["holdout"] == 1


def test_answers_that_were_cut_off_are_left_out_unless_they_are_wanted(answered, inputs):
    with pytest.raises(FindingError) as raised:
        answered("cut", capture=False)
    assert raised.value.findings[0].code == "conversations_empty"


def test_a_wanted_cut_answer_has_a_mask_of_what_was_sampled_and_no_more(answered):
    context = answered("cut", capture=False, keep_cut=True)
    assert context.summary["train"] == 4
    assert all(row["loss_mask"][-1][1] == len(row["input_ids"]) for row in context.rows("train.jsonl"))


def test_empty_answers_are_counted_and_never_rows(answered):
    with pytest.raises(FindingError, match="empty_response"):
        answered("empty", capture=False)


def test_rows_that_begin_twice_are_refused(answered, inputs):
    (inputs["target"] / "facts.json").write_text(json.dumps({**FACTS, "bos": 7}))
    with pytest.raises(FindingError, match="bos_duplicated: 5 of 5 rows begin with token 7 twice"):
        answered("begins")


def test_a_prompt_longer_than_the_context_is_left_out_and_told(answered, inputs):
    with open(inputs["prompts"] / "train.jsonl", "a") as file:
        file.write(json.dumps({"id": "long", "source": "test", "file": "f", "turns": ["x" * 390]}) + "\n")
    context = answered(capture=False)
    assert context.summary["dropped"] == {"prompt_too_long": 1}
    assert context.codes() == ["prompt_too_long"]
    assert context.rows("dropped.jsonl")[0]["prompt"] == "long"


def test_states_that_are_all_zero_are_errors_and_not_training_data(answered):
    with pytest.raises(FindingError) as raised:
        answered("zero")
    assert raised.value.findings[0].code == "conversations_empty"


def test_a_second_attempt_asks_only_for_what_is_missing(answered, attempt, stand_in, inputs):
    context = answered()
    whole = (context.output / "train.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    # The last row is cut in half, as by a kill in the middle of a write.
    (context.output / "train.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:20])
    again = answered()
    rows = again.rows("train.jsonl")
    assert [row["id"] for row in rows[:3]] == [json.loads(line)["id"] for line in lines[:3]]
    assert sorted(row["id"] for row in rows) == sorted(json.loads(line)["id"] for line in lines)


def test_an_attempt_with_nothing_left_to_ask_starts_no_engine(answered):
    answered()
    assert starts(answered()) == 0


def test_rows_of_another_sampling_are_not_taken_for_these(answered):
    answered(capture=False)
    assert starts(answered(capture=False, temperature=0.5)) == 1


def test_a_stop_keeps_what_was_answered_and_the_next_attempt_goes_on(attempt, stand_in, inputs):
    parameters = {"capture": False, "concurrency": 1}
    context = attempt("generate", inputs, stand_in(WAYS="slow"), **parameters)
    threading.Thread(target=lambda: (wait_for_rows(context, 1), context.ask_to_leave())).start()
    with pytest.raises(Stopped):
        generate.run(context)
    kept = context.rows("train.jsonl")
    assert 1 <= len(kept) < 4
    again = attempt("generate", inputs, stand_in(), **parameters)
    generate.run(again)
    assert again.rows("train.jsonl")[: len(kept)] == kept
    assert len(again.rows("train.jsonl")) == 4


def wait_for_rows(context, count):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        path = context.output / "train.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.05)


def test_a_worker_that_dies_ends_the_stage_with_its_cause(answered):
    with pytest.raises(FindingError) as raised:
        answered("worker", concurrency=1)
    assert raised.value.findings[0].code == "engine_worker_died"


def test_a_forecast_above_the_free_space_stops_before_the_engine_starts(answered, monkeypatch):
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 2**30})())
    with pytest.raises(FindingError) as raised:
        answered()
    assert raised.value.findings[0].code == "disk_space_insufficient"


@pytest.fixture
def extracted(attempt, stand_in, inputs, monkeypatch):
    """Run extract over an attempt of generate; the teacher is left out, since the stand-in has no head."""
    monkeypatch.setattr(extract.Extraction, "teacher_agreement", lambda self: None)

    def run(conversations, ways="", **parameters):
        given = {"target": inputs["target"], "conversations": conversations.output}
        context = attempt("extract", given, stand_in(WAYS=ways), **parameters)
        extract.run(context)
        return context

    return run


def check(context, conversations, layers):
    """Every row of both splits stands in the store, with the states that the stand-in makes."""
    store = open_store(context.output)
    assert store.stamp.layer_ids == layers
    for split in ("train", "holdout"):
        rows = conversations.rows(f"{split}.jsonl")
        stored = store.rows(split)
        assert [row.token_ids.tolist() for row in stored] == [row["input_ids"] for row in rows]
        for row, told in zip(stored, rows, strict=True):
            start, end = told["loss_mask"][0]
            assert row.loss_mask.nonzero().flatten().tolist() == list(range(start, end))
            assert row.last[:-1, 1].unique().tolist() == [1.0 + FACTS["layers"]]
            assert row.aux[:-1, 1::8].unique().tolist() == [1.0 + layer for layer in layers]
            assert row.last[:-1, 0].tolist() == [float(token) for token in told["input_ids"][:-1]]
            assert row.last[-1].abs().sum() == 0


def test_captures_of_generate_are_packed_without_an_engine(answered, extracted):
    conversations = answered()
    context = extracted(conversations)
    check(context, conversations, (2, 3))
    assert starts(context) == 0
    assert context.summary["rows"] == {"train": 4, "holdout": 1}


def test_without_captures_the_rows_go_through_the_engine_once(answered, extracted):
    conversations = answered(capture=False)
    context = extracted(conversations)
    check(context, conversations, (2, 3))
    assert starts(context) == 1
    assert not (context.output / "raw").exists()


def test_other_aux_layers_are_extracted_anew(answered, extracted):
    conversations = answered()
    context = extracted(conversations, aux_layers=(1, 4))
    check(context, conversations, (1, 4))
    assert starts(context) == 1


def test_a_damaged_capture_is_extracted_again(answered, extracted):
    conversations = answered()
    damaged = next((conversations.output / "captures").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:100])
    context = extracted(conversations)
    check(context, conversations, (2, 3))
    assert starts(context) == 1


def test_a_capture_of_another_sample_is_not_packed(answered, extracted):
    conversations = answered()
    one, other = sorted((conversations.output / "captures").iterdir(), key=lambda path: path.stat().st_size)[::4][:2]
    one.write_bytes(other.read_bytes())
    context = extracted(conversations)
    check(context, conversations, (2, 3))
    assert starts(context) == 1


@pytest.mark.parametrize(("layers", "code"), [((3, 3), "aux_layers_duplicate"), ((2, 6), "aux_layers_out_of_range")])
def test_layers_that_the_target_cannot_give_are_refused(answered, extracted, layers, code):
    conversations = answered(capture=False)
    with pytest.raises(FindingError) as raised:
        extracted(conversations, aux_layers=layers)
    assert raised.value.findings[0].code == code


def test_a_stop_keeps_whole_rows_and_the_next_attempt_goes_on(answered, attempt, stand_in, inputs, extracted):
    conversations = answered()
    given = {"target": inputs["target"], "conversations": conversations.output}
    context = attempt("extract", given, stand_in())
    context.ask_to_leave()
    with pytest.raises(Stopped):
        extract.run(context)
    stored = len(open_store(context.output).rows("train"))
    assert stored == 1
    check(extracted(conversations), conversations, (2, 3))


def test_a_store_larger_than_the_free_space_is_refused_before_the_start(answered, extracted):
    with pytest.raises(FindingError) as raised:
        extracted(answered(capture=False), free_floor_bytes=2**60)
    assert raised.value.findings[0].code == "disk_space_insufficient"


def test_zero_states_stop_extraction(answered, extracted):
    with pytest.raises(FindingError) as raised:
        extracted(answered(capture=False), ways="zero")
    assert raised.value.findings[0].code == "extraction_failed"
    assert "zero" in raised.value.findings[0].message
