"""The journal writer: whole lines, counted for each writer, valid JSON whatever a value is."""

from __future__ import annotations

import json
import os

from eagle3_backend.agent.journal import MAX_LINE, Journal


def _lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_two_writers_count_their_own_lines(tmp_path):
    path = tmp_path / "journal.jsonl"
    supervisor, stage = Journal(path, "supervisor"), Journal(path, "stage")
    supervisor.state("running")
    stage.progress(1, 10, "rows", rate=2.5)
    stage.metric(3, **{"train/loss": 1.5})
    seen = [(line["w"], line["seq"], line["kind"]) for line in _lines(path)]
    assert seen == [("supervisor", 0, "state"), ("stage", 0, "progress"), ("stage", 1, "metric")]


def test_values_that_json_lacks_stay_visible(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, "stage").metric(1, loss=float("nan"), norm=float("inf"))
    assert _lines(path)[0]["values"] == {"loss": "nan", "norm": "inf"}


def test_a_line_that_is_too_long_is_replaced_by_its_size(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, "stage").note("x" * MAX_LINE)
    (line,) = _lines(path)
    assert line["too_long"] > MAX_LINE


def test_a_torn_line_spoils_no_other(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "stage")
    write = os.write
    with monkeypatch.context() as full_disk:
        full_disk.setattr("os.write", lambda descriptor, data: write(descriptor, data[:10]))
        journal.note("torn")
    journal.note("whole")
    torn, whole = path.read_bytes().splitlines()
    assert len(torn) == 10
    assert (json.loads(whole)["seq"], json.loads(whole)["text"]) == (1, "whole")
