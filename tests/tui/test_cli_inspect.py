"""`inspect`: files that other tools made, judged without a host."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from eagle3_backend.drafter.tensorfile import header_bytes
from eagle3_tui.cli import app


def call(*argv):
    return CliRunner().invoke(app, ["inspect", *map(str, argv)])


@pytest.fixture
def rows(tmp_path):
    def write(*entries):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        return path

    return write


def test_rows_of_tokens_are_judged_and_an_error_ends_with_1(rows):
    path = rows({"id": "a", "input_ids": [5, 5, 6, 7], "loss_mask": [0, 0, 1, 1]})
    assert call(path).exit_code == 0
    result = call(path, "--bos", 5, "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert [finding["code"] for finding in said["findings"]] == ["bos_duplicated"]
    assert said["values"]["supervised_tokens"] == 2


def test_a_warning_about_answers_ends_with_0_and_shows_figures(rows):
    result = call(rows({"id": "a", "choices": [{"finish_reason": "stop", "message": {"content": ""}}]}))
    assert result.exit_code == 0
    assert "empty_response" in result.stderr
    assert 'dropped         ["a"]' in result.stdout


def test_finished_texts_need_to_know_what_an_assistants_turn_begins_with(rows):
    path = rows({"text": "<|im_start|>assistant\nSeven.<|im_end|>"})
    assert "rows_unknown" in call(path).stderr
    given = ("--assistant-header", r"<|im_start|>assistant\n", "--end-of-turn", "<|im_end|>", "--json")
    assert json.loads(call(path, *given).stdout)["values"] == {"samples": 1, "supervised_samples": 1}


@pytest.mark.parametrize("text", ["", "no json\n", "[1]\n"])
def test_a_file_without_rows_is_refused_in_words(tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    result = call(path)
    assert result.exit_code == 1
    assert "error" in result.stderr


def test_a_template_is_judged_by_its_generation_block(tmp_path):
    path = tmp_path / "chat_template.jinja"
    path.write_text("{{ messages }}")
    assert "generation_tag_missing" in call(path).stderr


def test_a_directory_of_states_and_one_of_a_training_are_told_apart(tmp_path):
    tensors = {"token_ids": ("int64", (2,)), "hidden_states": ("float16", (2, 1, 1))}
    (tmp_path / "hs_0.safetensors").write_bytes(header_bytes(tensors, {}) + bytes(20))
    assert json.loads(call(tmp_path, "--json").stdout)["values"]["complete"] == [0]
    (tmp_path / "run" / "3").mkdir(parents=True)
    result = call(tmp_path / "run")
    assert "checkpoint_incomplete" in result.stderr
    assert result.exit_code == 1
