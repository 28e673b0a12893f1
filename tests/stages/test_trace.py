"""The stage trace in this process, with stand-ins for the engines' servers that write small traces."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.stages import profiled_engine, trace

HERE = Path(__file__).parent
SMALL = {"concurrency": 4, "max_new_tokens": 12, "steps": 6}


@pytest.fixture
def profile(attempt, drafters, tmp_path, monkeypatch):
    """Run the stage on a stand-in; variables change its ways."""
    monkeypatch.setattr(profiled_engine, "STILL_SECONDS", 0.3)
    target = {**drafters.TARGET, "max_position_embeddings": 2048}
    (tmp_path / "target").mkdir()
    (tmp_path / "target/config.json").write_text(json.dumps(target))
    (tmp_path / "target/facts.json").write_text(json.dumps({"model": str(tmp_path / "target")}))
    drafters.checkpoint(replace(drafters.DRAFTER, max_position_embeddings=2048)).write(tmp_path / "drafter/flat")
    (tmp_path / "drafter/manifest.json").write_text(json.dumps({"summary": {"aux_layers": [2, 6, 9]}}))
    inputs = {name: tmp_path / name for name in ("target", "drafter")}

    def run(engine="vllm", env=None, **parameters):
        argv = [sys.executable, str(HERE / "stand_in_engine.py"), "serve", "{model}", "--port", "{port}"]
        key = {"variable": "VLLM_API_KEY"}
        if engine == "sglang":
            argv = [sys.executable, str(HERE / "stand_in_sglang.py"), "--port", "{port}"]
            argv += ["--config", "{config}", "--model-path", "{model}"]
            key = {"file": "api-key"}
        plan = {"engine": engine, "device": "cpu" if engine == "vllm" else "cuda", "argv": argv}
        plan |= {"env": env or {}, "reasons": {}, "expects": {}, "api_key": key}
        context = attempt("trace", inputs, plan, **{**SMALL, **parameters})
        run.context = context
        trace.run(context)
        return context

    return run


def test_a_decode_step_is_told_with_the_drafter_and_without(profile):
    context = profile()
    summary = context.summary
    drafted, plain = summary["drafted"], summary["plain"]
    assert drafted["shares"]["drafter"] == pytest.approx(0.3) and drafted["shares"]["attention"] == pytest.approx(0.25)
    assert plain["shares"]["gap"] == pytest.approx(0.1) and plain["drafter"] is None
    assert (drafted["steps"], drafted["requests"], plain["step_ms"]) == (6, 4, 1.0)
    assert context.engine_starts == 2 and context.codes() == []
    last = context.lines("progress")[-1]
    assert last["done"] == last["total"] == 16


def test_what_speculation_can_win_rests_on_the_measured_times(profile):
    gains = profile().summary["gains"]
    assert gains["step_ms"]["mean"] == 2.0 and gains["draft_ms"]["mean"] == 0.6
    assert gains["perfect_drafter"]["mean"] == pytest.approx(4 * 1.0 / 2.0)
    assert gains["speedup"]["mean"] == pytest.approx(gains["length"]["mean"] / 2.0, abs=1e-3)
    assert gains["not_measured"] == []


def test_the_traces_stay_with_their_size_and_the_whole_profile_lies_beside_them(profile):
    context = profile()
    files = sorted((context.output / "traces").rglob("*.gz"))
    assert [file.parent.name for file in files] == ["drafted", "plain"]
    assert context.summary["traces"] == {"files": 2, "bytes": sum(file.stat().st_size for file in files)}
    kept = json.loads((context.output / "trace.json").read_text())
    assert kept["drafted"]["shares"] == context.summary["drafted"]["shares"]


def test_without_the_control_no_speed_up_is_told(profile):
    summary = profile(control=False).summary
    assert summary["plain"] is None and summary["gains"]["speedup"] is None
    assert summary["gains"]["step_ms"]["mean"] == 2.0
    assert summary["engine_starts"] == 1


def test_sglang_is_profiled_by_its_own_request(profile):
    summary = profile("sglang").summary
    drafted = summary["drafted"]
    assert drafted["measured_on"] == "device" and drafted["drafter"]["told_by"] == "annotations"
    assert drafted["shares"] == pytest.approx({**dict.fromkeys(drafted["shares"], 0), "gemm": 0.4, "drafter": 0.3,
                                               "gap": 0.3})  # fmt: skip
    assert drafted["step_ms"] == 0.2


def test_a_torn_trace_is_used_as_far_as_it_goes_and_named(profile):
    context = profile(env={"STAND_IN_TORN": "1"}, steps=200, control=False)
    assert context.codes() == ["trace_truncated"]
    assert 1 < context.summary["drafted"]["steps"] < 200


def test_an_engine_that_writes_no_trace_is_a_finding(profile, monkeypatch):
    monkeypatch.setattr(profiled_engine, "WRITE_SECONDS", 0.5)
    with pytest.raises(FindingError) as problem:
        profile(env={"STAND_IN_UNTRACED": "1"})
    assert [finding.code for finding in problem.value.findings] == ["trace_missing"]


def test_the_disk_is_looked_at_before_an_engine_starts(profile, monkeypatch):
    monkeypatch.setattr(trace, "STEP_BYTES", 1 << 50)
    with pytest.raises(FindingError) as problem:
        profile()
    assert [finding.code for finding in problem.value.findings] == ["disk_space_insufficient"]
    assert profile.context.engine_starts == 0


def test_an_engine_that_dies_while_it_is_profiled_is_told_by_its_own_words(profile):
    with pytest.raises(FindingError) as problem:
        profile(env={"STAND_IN_DEATH": "7"})
    assert [finding.code for finding in problem.value.findings] != ["engine_request_failed"]
