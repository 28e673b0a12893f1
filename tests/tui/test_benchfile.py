"""Files that should hold the result of a bench, and do not."""

from __future__ import annotations

import json
import os

import pytest

from eagle3_backend.findings import FindingError
from eagle3_tui import benchfile

RECIPE = {"depth": 3}


def refused(path):
    with pytest.raises(FindingError) as problem:
        benchfile.read(str(path))
    return problem.value.findings[0].code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("~nobody-of-this-name/a", "file_missing"),
        ("a\0b", "file_unreadable"),
        ("\ud800", "file_unreadable"),
        ("loop", "file_unreadable"),
    ],
)
def test_a_name_that_no_file_has_or_can_have_is_told(tmp_path, monkeypatch, name, code):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    assert refused(name) == code


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"cells": [', '{"cells": ' + "[" * 10_000 + "]" * 10_000 + "}"],
    ids=["empty", "list", "cut", "deep"],
)
def test_what_is_no_json_object_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert refused(tmp_path / "a.json") == "json_invalid"


def test_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == "file_irregular"


def test_more_than_can_be_drawn_is_refused_and_three_hundred_loads_are_not(tmp_path):
    cell = {f"name {number}": {"mean": 1.0, "low": 1.0} for number in range(20)}
    for loads in (300, 3000):
        (tmp_path / f"{loads}.json").write_text(json.dumps({"cells": [cell] * loads, "recipe": RECIPE}))
    assert len(benchfile.read(str(tmp_path / "300.json")).summary["cells"]) == 300
    assert refused(tmp_path / "3000.json") == "bench_file_invalid"


def test_a_campaigns_answer_and_a_result_from_before_there_were_loads_are_opened(tmp_path):
    old = {"acceptance_length": {"published": {"mean": 1.5}}, "recipe": RECIPE}
    (tmp_path / "old.json").write_text(json.dumps({"through": "bench", "result": old}))
    assert benchfile.read(str(tmp_path / "old.json")).summary == old
    (tmp_path / "failed.json").write_text(json.dumps({"through": "bench", "result": None}))
    assert refused(tmp_path / "failed.json") == "bench_file_invalid"
