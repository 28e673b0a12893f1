"""Answers and hidden states that are already there: generate and extract with a real tokenizer and made-up states."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import save_file  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import extract, generate  # noqa: E402
from eagle3_backend.stages.store import open_store  # noqa: E402

pytestmark = pytest.mark.torch

END = 256
FACTS = {
    "model": "/models/tiny",
    "revision": "r1",
    "layers": 6,
    "hidden_size": 8,
    "aux_layers": [2, 3],
    "template_hash": "t",
    "tokenizer_hash": "k",
    "eos": [END],
}
TEMPLATE = (
    "{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('No.') }}{% endif %}"
    "{{ m.role + ':' }}{% if m.reasoning_content %}{{ '(' + m.reasoning_content + ')' }}{% endif %}"
    "{{ m.content + '<end>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def write_tokenizer(directory, template=TEMPLATE):
    """Bytes as tokens, and one more that ends a turn."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


@pytest.fixture
def inputs(tmp_path):
    target, prompts = tmp_path / "target", tmp_path / "prompts"
    target.mkdir()
    prompts.mkdir()
    (target / "facts.json").write_text(json.dumps(FACTS))
    write_tokenizer(target)
    rows = [
        {"turns": ["Hello", "More?"], "system": "Brief.", "answers": [said("Hi", reasoning="hm"), said("No.")]},
        {"turns": ["Two"], "answers": [said("Deux")]},
    ]
    write_prompts(prompts, "train", rows)
    write_prompts(prompts, "holdout", [{"turns": ["Held"], "answers": [said("Kept")]}])
    return {"target": target, "prompts": prompts}


def write_prompts(directory, split, rows):
    whole = [{"id": f"{split}{number}", "source": "test", "file": "f", **row} for number, row in enumerate(rows)]
    (directory / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in whole))


@pytest.fixture
def adopted(attempt, stand_in, inputs):
    def run(**parameters):
        context = attempt("generate", inputs, stand_in(), adopt=True, **{"max_new_tokens": 64, **parameters})
        generate.run(context)
        return context

    return run


def starts(context):
    return sum(line["text"].startswith("Starting the engine") for line in context.lines("note"))


def text(inputs, ids):
    return Tokenizer.from_file(str(inputs["target"] / "tokenizer.json")).decode(ids, skip_special_tokens=False)


def test_adopted_answers_are_rows_in_the_targets_own_tokens(adopted, inputs):
    rows = adopted().rows("train.jsonl")
    asked = "system:Brief.<end>\nuser:Hello<end>\nassistant:"
    assert [text(inputs, row["input_ids"]) for row in rows] == [
        asked + "(hm)Hi<end>",
        asked + "(hm)Hi<end>\nuser:More?<end>\nassistant:No.<end>",
        "user:Two<end>\nassistant:Deux<end>",
    ]
    assert [row["finish_reason"] for row in rows] == ["adopted"] * 3
    assert [row["mode"] for row in rows] == ["thinking", "plain", "plain"]


def test_the_mask_covers_the_answer_with_its_end_of_turn_and_no_more(adopted, inputs):
    for row, answer in zip(adopted().rows("train.jsonl"), ("(hm)Hi<end>", "No.<end>", "Deux<end>"), strict=True):
        (span,) = row["loss_mask"]
        assert text(inputs, row["input_ids"][slice(*span)]) == answer
        assert row["input_ids"][-1] == END


def test_without_a_row_to_generate_no_engine_starts_and_the_operator_is_warned_once(adopted):
    context = adopted()
    assert starts(context) == 0
    assert context.codes() == ["responses_not_regenerated"]
    assert (context.summary["adopted"], context.summary["train"], context.summary["holdout"]) == (4, 3, 1)


def test_conversations_without_all_answers_are_generated(adopted, inputs):
    write_prompts(inputs["prompts"], "train", [{"turns": ["Two"], "answers": [said("Deux")]}, {"turns": ["Three"]}])
    context = adopted()
    assert starts(context) == 1
    assert [row["finish_reason"] for row in context.rows("train.jsonl")] == ["adopted", "stop"]
    captured = {path.stem for path in (context.output / "captures").iterdir()}
    assert captured == {context.rows("train.jsonl")[1]["id"]}


def test_answers_are_generated_unless_adoption_is_asked_for(attempt, stand_in, inputs):
    context = attempt("generate", inputs, stand_in(), max_new_tokens=64)
    generate.run(context)
    assert {row["finish_reason"] for row in context.rows("train.jsonl")} == {"stop"}
    assert context.codes() == []


def test_a_second_attempt_adopts_nothing_twice(adopted):
    first = adopted().rows("train.jsonl")
    assert adopted().rows("train.jsonl") == first


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said(" "), "empty_response"),
        (said("<think>so"), "reasoning_unclosed"),
        (said("refuse"), "template_refused"),
        (said("x" * 400), "prompt_too_long"),
    ],
)
def test_answers_that_cannot_be_rows_are_left_out_and_counted(adopted, inputs, answer, reason):
    rows = [{"turns": ["One"], "answers": [said("Un")]}, {"turns": ["Two"], "answers": [answer]}]
    write_prompts(inputs["prompts"], "train", rows)
    context = adopted(context=200)
    assert context.summary["dropped"] == {reason: 1}
    assert len(context.rows("train.jsonl")) == 1


def test_a_template_that_does_not_go_on_from_its_own_prompt_gives_no_rows(adopted, inputs):
    write_tokenizer(inputs["target"], TEMPLATE.replace("'assistant:'", "'assistant:<think>'"))
    with pytest.raises(FindingError, match="template_unstable"):
        adopted()


def test_a_target_without_a_usable_tokenizer_is_a_finding(adopted, inputs):
    (inputs["target"] / "tokenizer.json").write_text("{")
    with pytest.raises(FindingError) as raised:
        adopted()
    assert raised.value.findings[0].code == "tokenizer_unreadable"


def states(ids, seed=0, slots=3):
    return torch.randn(len(ids), slots, 8, generator=torch.Generator().manual_seed(seed)).bfloat16()


@pytest.fixture
def foreign(tmp_path, adopted):
    """Conversations, and a directory of another tool's states of them, numbered in no order of ours."""
    conversations = adopted()
    directory = tmp_path / "foreign"
    directory.mkdir()
    rows = [row for split in ("holdout", "train") for row in conversations.rows(f"{split}.jsonl")]
    for number, row in enumerate(rows):
        write_states(directory, number, row["input_ids"])
    return conversations, directory


def write_states(directory, number, ids, made=None, **more):
    made = states(ids, number) if made is None else made
    tensors = {"token_ids": torch.tensor(ids), "hidden_states": made, **more}
    save_file(tensors, directory / f"hs_{number}.safetensors")


@pytest.fixture
def extracted(attempt, stand_in, inputs, foreign):
    def run(directory=foreign[1], **parameters):
        given = {"target": inputs["target"], "conversations": foreign[0].output}
        context = attempt("extract", given, stand_in(), adopt=str(directory), **parameters)
        extract.run(context)
        return context

    return run


def refused(run, **parameters):
    with pytest.raises(FindingError) as raised:
        run(**parameters)
    return [finding.code for finding in raised.value.findings]


def test_adopted_states_are_found_by_tokens_whatever_their_files_number(extracted, foreign):
    context = extracted()
    assert starts(context) == 0
    stored = open_store(context.output).rows("train")
    assert [row.token_ids.tolist() for row in stored] == [row["input_ids"] for row in foreign[0].rows("train.jsonl")]
    for number, row in enumerate(stored, 1):
        wanted = states(row.token_ids, number)[:-1]
        assert torch.equal(row.aux[:-1], wanted[:, :2].flatten(1)) and torch.equal(row.last[:-1], wanted[:, 2])


def test_the_stamp_names_where_states_were_adopted_from(extracted, foreign):
    assert open_store(extracted().output).stamp.adopted == str(foreign[1])


def test_a_path_in_the_workspace_may_be_relative(extracted, foreign):
    assert starts(extracted(directory="../foreign")) == 0


@pytest.mark.parametrize("more", [[], [7, 8]])
def test_states_of_fewer_or_more_tokens_serve_a_row_that_they_cover(extracted, foreign, more):
    conversations, directory = foreign
    ids = conversations.rows("holdout.jsonl")[0]["input_ids"]
    write_states(directory, 0, [*ids[:-1], *more])
    assert starts(extracted()) == 0


def test_rows_that_are_not_there_are_made_by_prefill(extracted, foreign):
    (foreign[1] / "hs_2.safetensors").unlink()
    context = extracted()
    assert starts(context) == 1
    assert context.summary["rows"] == {"train": 3, "holdout": 1}
    # The stand-in writes the layer's id into each state that it makes.
    made = open_store(context.output).rows("train")[1]
    assert made.last[:-1, 1].unique().tolist() == [1.0 + FACTS["layers"]]


def test_adopted_answers_are_not_judged_by_what_the_target_would_have_said(extracted):
    assert extracted().summary["teacher_agreement"] is None


def write_fp8(directory, ids):
    codes = states(ids).to(torch.float8_e4m3fn)
    write_states(directory, 0, ids, codes, hidden_states_scales=torch.ones(len(ids), 1, 1))


def write_nan(directory, ids):
    made = states(ids)
    made[1, 0, 0] = float("nan")
    write_states(directory, 0, ids, made)


def write_zero(directory, ids):
    made = states(ids)
    made[:, 1] = 0
    write_states(directory, 0, ids, made)


def write_cut(directory, ids):
    path = directory / "hs_0.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


def write_pointer(directory, ids):
    (directory / "hs_0.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")


def write_nameless(directory, ids):
    save_file({"token_ids": torch.tensor(ids)}, directory / "hs_0.safetensors")


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (write_fp8, "shard_dtype_mismatch"),
        (write_nan, "shard_nonfinite"),
        (write_zero, "shard_layer_zero"),
        (write_cut, "shard_truncated"),
        (write_pointer, "lfs_pointer"),
        (write_nameless, "tensor_missing"),
        (lambda directory, ids: write_states(directory, 0, ids, states(ids, slots=4)), "shard_shape_mismatch"),
        (lambda directory, ids: write_states(directory, 0, ids, states(ids[1:])), "shard_seq_len_mismatch"),
    ],
)
def test_a_faulty_file_is_refused_and_made_here_once_that_is_accepted(extracted, foreign, spoil, code):
    spoil(foreign[1], foreign[0].rows("holdout.jsonl")[0]["input_ids"])
    assert refused(extracted) == [code]
    context = extracted(accepted=[code])
    assert starts(context) == 1 and context.codes() == [code]
    assert context.summary["rows"] == {"train": 3, "holdout": 1}


def test_states_of_other_conversations_are_an_error_before_any_engine(extracted, foreign):
    for path in foreign[1].iterdir():
        path.unlink()
    write_states(foreign[1], 0, [5, 6, 7])
    assert refused(extracted) == ["shard_token_mismatch"]


@pytest.mark.parametrize("directory", ["/nowhere/states", "."])
def test_a_directory_without_states_is_a_finding(extracted, directory):
    assert refused(extracted, directory=directory) == ["shard_missing"]
