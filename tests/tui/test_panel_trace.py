"""The decode profile in the panel and as text: shares, what speculation can win, and what is not known."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from eagle3_backend.control.commands import Results
from eagle3_backend.control.snapshot import StageView
from eagle3_backend.states import RunState
from eagle3_tui import mockserving
from eagle3_tui.cli import app
from eagle3_tui.mock import MockSource
from eagle3_tui.tracefigures import lines, text
from eagle3_tui.widgets.facts import result_words


def call(*argv):
    return CliRunner().invoke(app, ["trace", *argv])


@pytest.fixture
def summary():
    return mockserving.answer(Results("trace"), "done", 0.0)["artifacts"][0]["summary"]


@pytest.fixture
def bench():
    return mockserving.answer(Results("bench"), "done", 0.0)["artifacts"][0]["summary"]


def by_key(summary, bench=None):
    return {line.key: line for line in lines(summary, bench)}


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_decode_profile_looks_as_it_did(show, compare, size) -> None:
    async with show("done", size) as panel:
        await panel.press("W")
        await panel.settle()
        compare(f"trace-{size[0]}x{size[1]}", panel.lines())


async def test_the_marked_share_tells_the_kernels_behind_it(show) -> None:
    async with show("done", (80, 24)) as panel:
        await panel.press("W")
        await panel.settle()
        await panel.press("down")
        assert "fused_moe_kernel" in panel.text() and "28.1 %" in panel.text()


async def test_without_a_profile_the_screen_says_how_to_make_one(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("W")
        assert "no decode profile of this campaign yet" in panel.text()
        await panel.press("s")
        assert "trace" in panel.text()


def test_a_finished_profile_has_a_headline(summary):
    view = StageView("trace", "Decode profile", RunState.DONE, summary=summary)
    assert result_words(view) == ("x1.438", "speed-up x1.438 (1.33 to 1.55) by the times of its steps")
    assert result_words(replace(view, summary={"gains": {"speedup": None}})) == ("", "")


def test_every_share_has_a_row_and_a_bar_and_says_what_it_holds(summary):
    rows = [line for line in lines(summary) if line.share is not None]
    assert sum(line.share for line in rows) == pytest.approx(1.0)
    assert all(line.means for line in lines(summary))
    assert "hidden communication" in text(summary) and "####" in text(summary)


def test_a_benchs_lengths_count_at_the_same_depth_only(summary, bench):
    assert by_key(summary, bench)["31 in_domain"].drafted.startswith("x1.64")
    other = {**bench, "recipe": {**bench["recipe"], "depth": 5}}
    assert "31 in_domain" not in by_key(summary, other)


def test_what_was_not_measured_is_said_with_its_reason(summary):
    gains = {**dict.fromkeys(summary["gains"]), "depth": 3, "not_measured": ["the drafter is not told apart"]}
    told = text({**summary, "plain": None, "gains": gains})
    assert "not measured: the drafter is not told apart" in told
    assert by_key({**summary, "gains": gains})["30 speedup"].drafted == "not measured"


@pytest.mark.parametrize(
    "strange",
    [{}, {"drafted": 3}, {"drafted": {"shares": {"attention": "all", "gap": True}}, "gains": []},
     {"drafted": {"shares": [1], "drafter": {"shares": 4, "told_by": {}}}, "gains": {"length": "long", "depth": "x"}},
     {"drafted": {"names": {"gemm": [3], "moe": 4}}, "plain": [], "gains": {"not_measured": 3}}],
)  # fmt: skip
def test_a_summary_of_another_shape_is_unknown_and_no_number(strange, bench):
    assert "step, ms" in text(strange, bench)


async def test_a_hostile_profile_does_not_break_the_screen(show, monkeypatch) -> None:
    entry = {"fingerprint": "\x1b[31mf", "ended": "soon", "summary": {"drafted": {"names": "x"}, "traces": 3}}
    act = MockSource._act
    monkeypatch.setattr(
        MockSource,
        "_act",
        lambda self, command: {"artifacts": [entry]} if isinstance(command, Results) else act(self, command),
    )
    async with show("done", (80, 24)) as panel:
        await panel.press("W")
        assert "step, ms" in panel.text() and "\x1b" not in panel.text()


def test_a_trace_that_is_there_is_reduced_without_a_campaign(tmp_path):
    events = []
    for at in range(0, 500, 100):
        place = {"ph": "X", "pid": 0, "tid": 7, "ts": at}
        events.append({**place, "cat": "gpu_user_annotation", "name": "step[DECODE bs=2]", "dur": 90})
        events.append({**place, "cat": "kernel", "name": "nvjet_tst_128x64", "dur": 75})
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    ended = call("--file", str(path), "--plain", str(path), "--json")
    assert ended.exit_code == 0
    said = json.loads(ended.stdout)
    assert said["drafted"]["shares"]["gemm"] == 0.75 and said["drafted"]["shares"]["gap"] == 0.25
    assert said["gains"]["plain_over_step"]["mean"] == 1.0 and said["findings"] == []
    assert "75.0 %" in call("--file", str(path)).stdout


def test_a_file_that_is_no_trace_ends_with_its_finding(tmp_path):
    (tmp_path / "t.json").write_text("[3")
    ended = call("--file", str(tmp_path / "t.json"), "--json")
    said = json.loads(ended.stdout)
    assert ended.exit_code == 1 and [finding["code"] for finding in said["findings"]] == ["trace_malformed"]
    assert call("--plain", "x.json").exit_code == 2
