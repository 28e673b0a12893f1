"""Speeds by load: none without its interval, and a host's text stays text."""

from __future__ import annotations

import pytest

from eagle3_tui.loadtable import HEADS, MEANS, as_markdown, as_text, bars, curves, load_rows, verdicts
from eagle3_tui.mockserving import _bench

SUMMARY = _bench(3, (0.62, 0.41, 0.28), (0.34, 0.12, 0.06), 1.37, 64)


def test_each_way_stands_beside_the_target_alone_at_its_load():
    rows = load_rows(SUMMARY)
    assert [row.cells[1] for row in rows] == ["none", "mine, depth 3", "ngram, depth 3"] * 2
    assert rows[1].cells[2] == "x1.37 (1.30 to 1.44)" and rows[0].cells[2] == "1"
    assert [row.role for row in rows] == ["text", "good", "good", "text", "bad", "bad"]
    assert dict(rows[1].more)["verify steps"] == "520" and len({row.key for row in rows}) == 6


def test_a_speed_up_that_includes_one_is_neither_good_nor_bad():
    (row,) = load_rows({"cells": [{"way": "mine", "depth": 3, "speedup": {"mean": 1.1, "low": 0.9, "high": 1.3}}]})
    assert row.role == "dim"


def test_every_column_says_what_it_is():
    assert set(MEANS) == set(HEADS)


def test_bars_share_one_scale():
    drawn = bars(load_rows(SUMMARY))
    assert drawn[1] == "#" * 12 and drawn[0] == drawn[3] and drawn[4].count("#") < drawn[3].count("#")


def test_a_curve_for_each_way_goes_over_the_loads():
    drawn = {curve.label: curve.points for curve in curves(SUMMARY)}
    assert drawn["none"] == ((1.0, 1.0), (8.0, 1.0))
    assert [x for x, _ in drawn["mine, depth 3"]] == [1.0, 8.0] and len(drawn) == 3


def test_the_report_holds_speeds_acceptance_checks_and_recipe():
    report = as_markdown(SUMMARY, "Bench of local")
    for heading in ("# Bench of local", "## Speed", "## Acceptance length", "## Checks", "## Recipe"):
        assert heading in report
    assert "| prompt set hash | 0c4477ad |" in report and "24 of 24" in report and "1.31 beside 2.31: worse" in report
    widths = {line.count("|") for line in report.splitlines() if line.startswith("| 1 (0.94)")}
    assert widths == {len(HEADS) + 2}


def test_long_documents_stand_beside_the_other_prompts_with_each_length():
    by_source = {
        "1k tokens": {"mean": 1.9, "low": 1.7, "high": 2.1, "prompts": 4},
        "2k tokens": {"mean": 1.2, "low": 1.2, "high": 1.2, "prompts": 1},
    }
    measured = {**SUMMARY["acceptance_length"], "long_context": {"mean": 1.5, "prompts": 8, "by_source": by_source}}
    report = as_markdown({**SUMMARY, "acceptance_length": measured})
    for row in (
        "| long context | 1.50 | 8 |",
        "| - 1k tokens | 1.90 (1.70 to 2.10) | 4 |",
        "| - 2k tokens | 1.20 | 1 |",
    ):
        assert row in report


def test_what_was_lost_is_told():
    lost = {"ways_lost": [{"way": "ngram", "depth": 3, "loads_kept": 1, "why": "It died."}]}
    assert verdicts(lost) == ["lost: ngram, depth 3 after 1 loads: It died."]
    over = {"starts": 2, "attempts": [1, 3], "taken_up": 9, "answers": 40}
    assert "over 2 starts: 9 of 40 answers" in verdicts({"measured_over": over})[0]
    assert verdicts({"measured_over": {**over, "starts": 1}}) == []


def test_without_timed_rounds_there_is_no_table():
    assert as_text({"acceptance_length": {}}) == "" and load_rows({}) == []


NASTY = [None, 3, "| x | `y`\n# z", [1, {}], {"a": [None]}, float("nan"), float("inf"), True]


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_a_manifest_of_any_shape_is_shown(nasty):
    cell = dict.fromkeys(SUMMARY["cells"][1], nasty)
    parts = {"p50": nasty, nasty if isinstance(nasty, str) else "p99": {"mean": nasty, "low": nasty}}
    deep = {"way": nasty, "depth": nasty, "speedup": {"mean": nasty, "low": nasty, "high": nasty}, "gap_ms": parts}
    changed = {
        "cells": [nasty, cell, deep],
        "ways_lost": [nasty],
        "measured_over": {"starts": 2, "taken_up": nasty},
        "drafter_needed": [{"words": nasty}],
    }
    for summary in (dict.fromkeys(SUMMARY, nasty), {**SUMMARY, **changed, "controls": {"c": nasty}}):
        assert len(bars(load_rows(summary))) == len(load_rows(summary))
        as_text(summary)
        curves(summary)
        report = as_markdown(summary, str(nasty))
        assert [line for line in report.splitlines() if line.startswith("# z")] == []
