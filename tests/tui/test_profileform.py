"""The form of a profile: what it says of each key, and edits that keep the file as its author wrote it."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.profile import load
from eagle3_tui import profileform
from eagle3_tui.profileform import form, typed, with_value, without

PATH = Path("mine.toml")
TEXT = """\
# Ours.
[host]
address = "embedded"   # here

[target]
model = "demo:smollm2-135m"

# The vocabulary is small.
[stages.vocab]
draft_vocab_size = 4096 # entries
# nothing else

# Long.
[stages.train]
epochs = 3
"""


def changes(before: str, after: str) -> list[str]:
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in found if line[:3] not in ("---", "+++", "@@ ") and line[:2] != "@@"]


def field(path: str) -> profileform.Field:
    value = form(PATH, TEXT, TEXT).value(path)
    assert value is not None
    return value.field


def test_every_parameter_of_every_stage_is_there_with_its_meaning():
    found = {value.field.path: value for value in form(PATH, TEXT, TEXT).values}
    filled = {f"stages.{stage}.{name}" for stage, names in profileform.FILLED.items() for name in names}
    declared = {
        f"stages.{name}.{key}" for name, stage in STAGES.items() for key in stage.parameters.__dataclass_fields__
    }
    assert declared - filled == {path for path in found if path.startswith("stages.")}
    assert all(value.field.about for value in found.values())
    vocab = found["stages.vocab.draft_vocab_size"]
    assert (vocab.value, vocab.field.default, vocab.written, vocab.field.bound) == (4096, 16384, True, ">= 1")
    assert found["stages.train.loss"].field.choices == ("kl", "lk_hybrid")
    assert not found["host.address"].edited and found["host.address"].changed


@pytest.mark.parametrize(
    ("path", "value", "lines"),
    [
        ("stages.vocab.draft_vocab_size", 8192,
         ["-draft_vocab_size = 4096 # entries", "+draft_vocab_size = 8192 # entries"]),
        ("host.address", "box", ['-address = "embedded"   # here', '+address = "box"   # here']),
        ("stages.vocab.save_seconds", 5.5, ["+save_seconds = 5.5"]),
        ("stages.bench.depth", 2, ["+", "+[stages.bench]", "+depth = 2"]),
        ("stages.prompts.files", ["a.jsonl"], ["+", "+[stages.prompts]", '+files = ["a.jsonl"]']),
    ],
)  # fmt: skip
def test_an_edit_changes_its_line_alone(path, value, lines):
    after = with_value(TEXT, path, value)
    assert changes(TEXT, after) == lines


def test_a_new_key_stands_before_the_comment_of_the_next_table():
    after = with_value(TEXT, "stages.vocab.save_seconds", 5.5)
    assert "# nothing else\nsave_seconds = 5.5\n\n# Long.\n[stages.train]" in after


def test_line_ends_and_the_byte_order_mark_stay():
    before = "\ufeff" + TEXT.replace("\n", "\r\n")
    after = with_value(before, "stages.train.epochs", 9)
    assert after == before.replace("epochs = 3", "epochs = 9")
    assert form(PATH, before, after).reach[0] == "train"


def test_taking_a_key_out_brings_its_default_back():
    after = without(TEXT, "stages.train.epochs")
    assert changes(TEXT, after) == ["-epochs = 3"]
    assert without(TEXT, "stages.bench.depth") == TEXT
    value = form(PATH, TEXT, after).value("stages.train.epochs")
    assert (value.written, value.value, value.edited) == (False, 3, False)


def test_an_edit_says_which_stages_make_something_else():
    after = with_value(TEXT, "stages.evaluate.depth", 5)
    assert form(PATH, TEXT, after).reach == ("evaluate",)
    assert form(PATH, TEXT, with_value(TEXT, "stages.train.checkpoint_seconds", 5.0)).reach == ()
    assert form(PATH, TEXT, with_value(TEXT, "host.address", "box")).reach == ()
    prompts = form(PATH, TEXT, with_value(TEXT, "stages.prompts.files", ["b.jsonl"])).reach
    assert prompts[0] == "prompts" and "train" in prompts


def test_faults_stand_beside_their_keys_and_are_those_of_the_profile(tmp_path):
    after = with_value(with_value(TEXT, "stages.train.epochs", 0), "stages.train.loss", "mse")
    after = after.replace("draft_vocab_size", "draft_vocab")
    file = tmp_path / "a.toml"
    file.write_text(after)
    with pytest.raises(FindingError) as problem:
        load(file)
    shown = form(PATH, TEXT, after)
    assert [one.to_json() for one in shown.findings] == [one.to_json() for one in problem.value.findings]
    assert shown.reach is None
    beside = {value.field.path for value in shown.values if value.findings}
    assert beside == {one.path for one in shown.findings} >= {"stages.train.epochs", "stages.vocab.draft_vocab"}


def test_words_are_read_as_toml_and_else_as_text():
    assert typed(field("stages.train.epochs"), " 7 ") == 7
    assert typed(field("stages.train.epochs"), "seven") == "seven"
    assert typed(field("target.model"), "0123") == "0123"
    assert typed(field("target.model"), '"quoted"') == "quoted"
    assert typed(field("stages.generate.capture"), "false") is False
    assert typed(field("stages.prompts.files"), '["a", "b"]') == ["a", "b"]
    assert typed(field("stages.train.epochs"), "1\nx = 2") == "1\nx = 2"


@pytest.mark.parametrize("value", ["[/] \x1b[31m \u202e", 'quote " and \\', "a\nb", "日本語"])
def test_any_text_survives_being_written(value):
    after = with_value(TEXT, "target.model", value)
    assert tomllib.loads(after)["target"]["model"] == value


@pytest.mark.parametrize("value", [object(), "\ud800"])
def test_a_value_that_toml_cannot_hold_is_refused(value):
    with pytest.raises(FindingError) as problem:
        with_value(TEXT, "target.model", value)
    assert problem.value.findings[0].code == "edit_impossible"


def test_a_key_below_a_value_is_refused():
    with pytest.raises(FindingError):
        with_value(TEXT.replace("[stages.train]\nepochs = 3", "[stages]\ntrain = 3"), "stages.train.epochs", 4)


def test_a_copy_elsewhere_finds_its_prompt_files():
    text = with_value(TEXT, "stages.prompts.files", ["a/b.jsonl", "/c.jsonl", "hub:lab/exam"])
    copied = tomllib.loads(profileform.with_whole_paths(text, Path("/shipped")))
    assert copied["stages"]["prompts"]["files"] == ["/shipped/a/b.jsonl", "/c.jsonl", "hub:lab/exam"]
    assert profileform.with_whole_paths(TEXT, Path("/shipped")) == TEXT


def test_what_is_no_toml_is_told(tmp_path):
    with pytest.raises(FindingError) as problem:
        form(PATH, "[", "[")
    assert problem.value.findings[0].code == "profile_invalid"
    for make in (lambda path: None, lambda path: path.write_bytes(b"\xff")):
        make(tmp_path / "a.toml")
        with pytest.raises(FindingError) as problem:
            profileform.read(tmp_path / "a.toml")
        assert problem.value.findings[0].code == "profile_unreadable"


def test_a_fault_of_a_table_stands_beside_all_of_its_keys():
    text = TEXT + '[environments.vllm]\nset = ""\n'
    beside = [value.field.path for value in form(PATH, TEXT, text).values if value.findings]
    assert beside == ["environments.vllm.python", "environments.vllm.set"]


def test_a_key_that_holds_a_point_is_written_and_taken_out_with_every_comment_kept():
    text = "[stages.serve]  # ours\ndepth = 3\n# the end\n"
    path = ("stages", "serve", "options", "--speculative-config.kv_cache_dtype")
    written = profileform.with_value(text, path, "auto")
    told = tomllib.loads(written)["stages"]["serve"]["options"]
    assert told == {"--speculative-config.kv_cache_dtype": "auto"}
    assert "# ours" in written and "# the end" in written
    assert "options" not in profileform.without(written, ("stages", "serve", "options"))
    assert "kv_cache_dtype" not in profileform.without(written, path)
