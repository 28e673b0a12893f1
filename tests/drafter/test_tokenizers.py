from __future__ import annotations

import json

import pytest

from eagle3_backend.drafter.checks import check
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.tokenizers import ids_of, token_ids

ADDED = [{"id": 2, "content": "<end>"}]


@pytest.mark.parametrize("vocabulary", [{"a": 0, "b": 1}, [["a", 0.0], ["b", -1.5]]])
def test_ids_are_those_of_the_model_and_of_added_tokens(tmp_path, vocabulary) -> None:
    content = {"model": {"vocab": vocabulary}, "added_tokens": ADDED}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    assert token_ids(LocalFolder(tmp_path)) == {"a": 0, "b": 1, "<end>": 2}


@pytest.mark.parametrize("content", [{}, {"model": None}, {"model": {"vocab": 7}}])
def test_a_file_of_another_kind_has_none(content) -> None:
    assert ids_of(content) is None


def test_a_directory_without_a_tokenizer_has_none(tmp_path) -> None:
    assert token_ids(LocalFolder(tmp_path)) is None


def test_a_drafter_with_another_tokenizer_is_told(drafters) -> None:
    config = drafters.checkpoint().config
    same, other = {"a": 0, "b": 1}, {"a": 0, "b": 2}
    assert check(config, "vllm", target=drafters.TARGET, token_ids=(same, {**same, "c": 2})) == []
    (finding,) = check(config, "vllm", target=drafters.TARGET, token_ids=(same, other))
    assert (finding.code, finding.expected, finding.actual) == ("tokenizer_mismatch", 2, 1)
