from __future__ import annotations

import json
from pathlib import Path

from eagle3_backend.stages.bench_prompts import read_rows, training_texts


def test_training_texts_are_the_turns_and_all_messages(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"turns": ["Question?", "And then?"]}) + "\n")
    messages = [{"role": "user", "content": "Question?"}, {"role": "assistant", "content": "Answer."}]
    (tmp_path / "conversations.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    texts = list(training_texts(tmp_path / "prompts.jsonl", tmp_path / "conversations.jsonl"))
    assert texts == ["Question?", "And then?", "Question?", "Answer."]


def test_a_missing_file_has_no_rows(tmp_path: Path) -> None:
    assert list(read_rows(tmp_path / "absent.jsonl")) == []
