"""The bench and serve stages as processes, with stand-ins for the engines' servers (`stand_in_engine.py`,
`stand_in_sglang.py`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from eagle3_backend.engines import startup
from eagle3_backend.engines.plan import KEY_VARIABLE
from eagle3_backend.pipeline import long_context
from eagle3_backend.pipeline.artifacts import read_manifest


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


SMALL = {
    "max_new_tokens": 24,
    "speed_prompts": 4,
    "lossless_prompts": 6,
    "bootstrap": 100,
    "concurrency": 4,
    "raw_prompts": 4,
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_bench_tells_acceptance_speed_and_losslessness_from_two_engine_starts(campaign: Any, device: str) -> None:
    bench = campaign.start("bench", device, **SMALL)
    assert bench.end() == 0
    summary = bench.summary
    assert bench.codes() == []
    for name, prompts in (("in_domain", 6), ("published", 8)):
        figure = summary["acceptance_length"][name]
        assert figure["low"] <= figure["mean"] <= figure["high"]
        assert (figure["prompts"], figure["steps"]) == (prompts, prompts * 12)
        assert figure["mean"] == pytest.approx(1 + sum(figure["by_position"]), abs=1e-3)
    assert summary["speedup_c1"]["prompts"] == 4
    assert (summary["lossless_equal"], summary["lossless_total"]) == (6, 6)
    assert summary["engine_starts"] == 2
    assert summary["recipe"]["speed"] == ("interleaved" if device == "cpu" else "one after the other")
    assert [row["depth"] for row in summary["by_depth"]] == [0, 1, 2, 3]
    assert living(bench.engine_pids()) == []


SWEEP = {**SMALL, "depths": (1,), "concurrencies": (2,), "speed_prompts": 3}


def rows(summary: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in names) for row in summary["cells"]]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_sweep_measures_each_depth_and_way_at_each_load_with_one_engine_start_each(
    campaign: Any, device: str
) -> None:
    other = campaign.directory / "published-drafter"
    shutil.copytree(campaign.directory / "drafter/flat", other)
    bench = campaign.start("bench", device, **SWEEP, against=("ngram", "mtp", str(other)))
    assert bench.end() == 0
    summary = bench.summary
    assert summary["engine_starts"] == 1 + 2 + 2
    assert bench.codes() == ["own_head_missing"]
    ways = [("none", 0), ("mine", 3), ("mine", 1), ("ngram", 3), ("published-drafter", 3)]
    assert rows(summary, "way", "depth", "concurrency") == [(*way, load) for load in (1, 2) for way in ways]
    for row in summary["cells"]:
        assert row["prompts"] == (3 if row["concurrency"] == 1 else 8)
        for name in ("first_token_ms", "gap_ms"):
            assert 0 <= row[name]["p50"]["low"] <= row[name]["p50"]["mean"] <= row[name]["p99"]["mean"]
        assert 0 < row["in_flight"] <= row["concurrency"]
        if row["way"] != "none":
            assert row["speedup"]["low"] <= row["speedup"]["mean"] <= row["speedup"]["high"]
            assert row["acceptance_length"]["steps"] == 12 * row["prompts"] and row["rounds_left_out"] == 0
    assert [entry["concurrency"] for entry in summary["recommended_by_concurrency"]] == [1, 2]
    assert [entry["concurrency"] for entry in summary["drafter_needed"]] == [1, 2]
    last = bench.lines("progress")[-1]
    assert last["done"] == last["total"]
    assert living(bench.engine_pids()) == []


def test_a_way_whose_engine_dies_is_told_and_the_rest_stays(campaign: Any) -> None:
    bench = campaign.start("bench", env={"STAND_IN_WAY_DEATH": "ngram"}, **SWEEP, against=("ngram",))
    assert bench.end() == 0
    assert bench.codes() == ["bench_way_lost"]
    (lost,) = bench.summary["ways_lost"]
    assert (lost["way"], lost["depth"], lost["loads_kept"]) == ("ngram", 3, 0)
    assert {row[0] for row in rows(bench.summary, "way")} == {"none", "mine"}
    assert bench.summary["recommended_by_concurrency"]


def test_another_drafter_that_cannot_be_read_is_refused_before_an_engine_starts(campaign: Any) -> None:
    bench = campaign.start("bench", **SWEEP, against=("ngram", str(campaign.directory / "nowhere")))
    assert bench.end() == 1
    assert bench.codes() == ["drafter_missing"] and bench.engine_pids() == []


def test_a_round_in_which_others_were_served_is_left_out_of_the_speeds_and_told(campaign: Any) -> None:
    # Its first request is the one that proves it ready; the second and third are timed.
    bench = campaign.start("bench", env={"STAND_IN_STRANGER": "3"}, **SMALL)
    assert bench.end() == 0
    assert bench.codes() == ["bench_other_traffic"]
    assert bench.summary["speedup_c1"]["prompts"] == 3
    assert rows(bench.summary, "rounds_left_out") == [(None,), (1,)]


def test_more_requests_in_flight_than_there_are_prompts_is_told(campaign: Any) -> None:
    bench = campaign.start("bench", **{**SMALL, "concurrencies": (40,)})
    assert bench.end() == 0
    assert bench.codes() == ["concurrency_not_reached"]
    assert rows(bench.summary, "concurrency", "prompts")[-1] == (40, 14)


def test_raw_text_has_to_be_drafted_worse_than_chats(campaign: Any) -> None:
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 0
    control = bench.summary["controls"]["raw_text"]
    assert control["raw"] == 1.0 < control["chat"] and control["failed_as_it_must"] is True
    alike = campaign.start("bench", env={"STAND_IN_RAW_ALIKE": "1"}, **SMALL)
    assert alike.end() == 0
    assert alike.summary["controls"]["raw_text"]["failed_as_it_must"] is False
    assert alike.codes() == ["control_did_not_fail"]


def test_the_recipe_names_everything_that_has_to_be_equal(campaign: Any) -> None:
    made = {"summary": {"data_sets": ["hub:lab/exam@4f3c:test"]}}
    (campaign.directory / "prompts/manifest.json").write_text(json.dumps(made))
    bench = campaign.start("bench", **SWEEP)
    assert bench.end() == 0
    recipe = bench.summary["recipe"]
    assert recipe["engine_version"] == "stand-in" and recipe["template_hash"] == "t"
    assert (recipe["quantisation"], recipe["kv_cache_dtype"], recipe["dtype"]) == ("none", "auto", "float32")
    assert (recipe["depths"], recipe["concurrencies"]) == ([1, 3], [1, 2])
    assert len(recipe["prompt_set_hash"]) == 16 and recipe["timed_answers"] == "streamed"
    assert recipe["data_sets"] == ["hub:lab/exam@4f3c:test"]


SGLANG = {**SMALL, "engine": "sglang"}


def test_sglang_is_measured_by_what_its_answers_tell_and_its_own_steps_agree(campaign: Any) -> None:
    bench = campaign.start("bench", "cuda", **SGLANG)
    assert bench.end() == 0
    summary = bench.summary
    assert bench.codes() == []
    assert summary["engine"] == {"name": "sglang", "version": "0.5.23"}
    for name, prompts in (("in_domain", 6), ("published", 8)):
        figure = summary["acceptance_length"][name]
        assert figure["low"] <= figure["mean"] <= figure["high"]
        assert (figure["prompts"], figure["steps"]) == (prompts, prompts * 12)
        assert figure["mean"] == pytest.approx(1 + sum(figure["by_position"]), abs=1e-3)
    assert [row["depth"] for row in summary["by_depth"]] == [0, 1, 2, 3]
    assert (summary["lossless_equal"], summary["lossless_total"]) == (6, 6)
    rows = json.loads((bench.output / "bench.json").read_text())["answers"]
    lengths = {(row["set"] == "raw_text", len(row["tokens"]), len(row["accepted"])) for row in rows}
    assert lengths == {(False, 24, 0), (True, 12, 0)}
    assert summary["controls"]["raw_text"]["failed_as_it_must"] is True
    assert summary["cells"][1]["speedup"]["prompts"] == 4 and summary["recipe"]["timed_answers"] == "streamed"
    assert all(cell[name] is not None for cell in summary["cells"] for name in ("first_token_ms", "gap_ms", "token_ms"))
    timed = json.loads((bench.output / "bench.json").read_text())["timed"]
    assert {(len(row["drafted"]["arrivals"]), row["verify_steps"]) for row in timed} == {(12, 12)}


def test_both_engines_tell_the_same_of_the_same_answers(campaign: Any) -> None:
    figures = []
    for values in (SMALL, SGLANG):
        bench = campaign.start("bench", "cuda", **values)
        assert bench.end() == 0
        figures.append(bench.summary["acceptance_length"])
    assert figures[0] == figures[1]


def test_an_older_sglang_tells_no_acceptance_by_position_and_no_waiting_times(campaign: Any) -> None:
    bench = campaign.start("bench", "cuda", env={"STAND_IN_OLD": "1"}, **SGLANG)
    assert bench.end() == 0
    assert bench.summary["acceptance_length"]["published"]["by_position"] == []
    assert bench.summary["acceptance_length"]["published"]["mean"] > 1
    assert [row["depth"] for row in bench.summary["by_depth"]] == [0, 3]
    assert bench.summary["recipe"]["timed_answers"] == "whole" and bench.summary["speedup_c1"]["mean"] > 0
    assert all(cell["first_token_ms"] is None for cell in bench.summary["cells"])


def test_steps_that_sglang_made_for_others_are_told(campaign: Any) -> None:
    bench = campaign.start("bench", "cuda", env={"STAND_IN_STRANGER": "1"}, **SGLANG)
    assert bench.end() == 0
    assert set(bench.codes()) == {"metrics_disagree", "bench_other_traffic"}
    assert bench.summary["speedup_c1"] is None


def test_sglang_serves_with_its_key_in_a_file_that_goes_with_it(campaign: Any) -> None:
    serve = campaign.start("serve", "cuda", engine="sglang")
    endpoint = serve.directory / "endpoint.json"
    serve.wait_for(endpoint.exists)
    found = json.loads(endpoint.read_text())
    assert found["engine"] == "sglang"
    serve.process.send_signal(signal.SIGTERM)
    assert serve.end() == 75
    assert living(serve.engine_pids()) == []
    assert not (serve.directory / "engine.yaml").exists()


def test_the_journal_shows_progress_to_the_end_and_the_running_acceptance(campaign: Any) -> None:
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 0
    last = bench.lines("progress")[-1]
    assert last["done"] == last["total"] == 2 * 4 + 2 + 6 + 8 + 4
    figures = [line["values"] for line in bench.lines("metric") if "acceptance_length/published" in line["values"]]
    measured = bench.summary["acceptance_length"]["published"]["mean"]
    assert figures[-1]["acceptance_length"] == pytest.approx(measured, abs=1e-3)


def test_every_answer_is_kept_with_its_token_ids_and_steps(campaign: Any) -> None:
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 0
    kept = json.loads((bench.output / "bench.json").read_text())
    rows = [row for row in kept["answers"] if row["set"] == "published"]
    assert len(rows) == 8
    assert all(len(row["tokens"]) == 24 and len(row["accepted"]) == 12 for row in rows)
    assert json.loads((bench.output / "recipe.json").read_text()) == kept["recipe"]


def test_overlap_with_the_training_text_is_told(campaign: Any) -> None:
    campaign.prompts("train", ["Describe object number 2 of the household.", "Something else."])
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 0
    overlaps = {name: figure["overlap_13gram"] for name, figure in bench.summary["acceptance_length"].items()}
    assert overlaps["in_domain"]["prompts"]["texts_sharing"] == 1
    assert overlaps["published"]["prompts"]["texts_sharing"] == 0


def test_without_published_prompts_that_figure_is_null_and_said_to_be(campaign: Any) -> None:
    campaign.prompts("published", [])
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 0
    assert bench.summary["acceptance_length"]["published"] is None
    assert bench.codes() == ["prompt_set_missing"]


def test_without_any_prompt_bench_refuses_before_it_starts_an_engine(campaign: Any) -> None:
    campaign.prompts("published", [])
    campaign.prompts("holdout", [])
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 1
    assert bench.codes() == ["prompt_set_empty"]
    assert bench.engine_pids() == []


def test_a_prompt_longer_than_the_context_is_left_out_and_named(campaign: Any) -> None:
    campaign.prompts("holdout", ["Short and good?", "word " * 300])
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 0
    assert bench.summary["acceptance_length"]["in_domain"]["prompts"] == 1
    assert bench.summary["speedup_c1"]["prompts"] == 3
    assert set(bench.codes()) == {"prompt_refused"}


def test_long_documents_have_a_figure_of_their_own_over_those_that_fit_with_their_answer(campaign: Any) -> None:
    sizes = sorted(len(row["turns"][0]) for row in long_context.rows())
    room = sizes[7] + 10
    bench = campaign.start("bench", env={"STAND_IN_ROOM": str(room)}, long_context=24, **SMALL)
    assert bench.end() == 0
    fitting = sum(size + SMALL["max_new_tokens"] <= room for size in sizes)
    figure = bench.summary["acceptance_length"]["long_context"]
    assert (figure["prompts"], figure["steps"]) == (fitting, fitting * 12) and 0 < fitting < 8
    assert figure["mean"] == pytest.approx(1 + sum(figure["by_position"]), abs=1e-3)
    assert [line["code"] for line in bench.lines("finding")] == ["prompt_refused", "prompt_beyond_context"]
    assert bench.summary["acceptance_length"]["in_domain"]["prompts"] == 6
    assert set(bench.summary["by_depth"][3]["acceptance_length"]) == {"in_domain", "published", "long_context"}
    assert set(bench.summary["by_depth"][3]["speedup_c1"]) == {"in_domain", "published"}
    assert len(bench.summary["recipe"]["long_context_hash"]) == 16


def test_a_set_of_which_nothing_fits_has_no_figure_and_costs_no_other(campaign: Any) -> None:
    bench = campaign.start("bench", long_context=2, **SMALL)
    assert bench.end() == 0
    assert bench.summary["acceptance_length"]["long_context"] is None and bench.codes() == ["prompt_refused"]
    assert bench.summary["recommended_for"] == "in_domain"


def test_a_drafter_that_the_engine_does_not_use_is_an_error(campaign: Any) -> None:
    bench = campaign.start("bench", env={"STAND_IN_NO_DRAFTS": "1"}, **SMALL)
    assert bench.end() == 1
    assert bench.codes() == ["no_drafts_counted"]


def test_texts_are_not_compared_in_a_dtype_in_which_they_may_differ(campaign: Any) -> None:
    bench = campaign.start("bench", dtype="bfloat16", **SMALL)
    assert bench.end() == 0
    assert bench.summary["lossless_equal"] is None
    assert bench.codes() == ["lossless_not_compared"]


def test_an_engine_that_dies_is_named_as_the_cause_and_its_twin_is_ended(campaign: Any) -> None:
    bench = campaign.start("bench", env={"STAND_IN_DEATH": "9"}, **SMALL)
    assert bench.end() == 1
    assert bench.codes() == ["engine_worker_died"]
    assert len(bench.engine_pids()) == 2
    assert living(bench.engine_pids()) == []
    assert read_manifest(bench.output) is None


def test_a_stop_request_ends_both_engines_and_leaves_as_stopped(campaign: Any) -> None:
    bench = campaign.start("bench", env={"STAND_IN_SECONDS": "0.3"}, **SMALL)
    bench.wait_for(lambda: (bench.directory / "journal.jsonl").exists() and len(bench.lines("progress")) > 2)
    bench.process.send_signal(signal.SIGTERM)
    assert bench.end() == 75
    assert living(bench.engine_pids()) == []
    assert read_manifest(bench.output) is None


def test_a_layout_that_was_not_exported_is_refused_before_an_engine_starts(campaign: Any) -> None:
    bench = campaign.start("bench", layout="nested", **SMALL)
    assert bench.end() == 1
    assert bench.codes() == ["drafter_missing"]
    assert bench.engine_pids() == []


@pytest.mark.parametrize(("took", "path"), [("eagle 3 2,6,9", "method"), ("eagle3 2 2,6,9", "depth"),
                                            ("eagle3 3 2,6,10", "aux_layers")])  # fmt: skip
def test_an_engine_that_took_another_plan_is_not_given_out(campaign: Any, took: str, path: str) -> None:
    serve = campaign.start("serve", env={"STAND_IN_TOOK": took})
    assert serve.end() == 1
    (finding,) = serve.lines("finding")
    assert (finding["code"], finding["path"]) == ("plan_not_taken", path)
    assert not (serve.directory / "endpoint.json").exists()
    assert living(serve.engine_pids()) == []


def test_a_plan_that_was_not_taken_is_served_when_that_is_accepted(campaign: Any) -> None:
    serve = campaign.start("serve", env={"STAND_IN_TOOK": "eagle3 3 2,6,10"}, accepted=["plan_not_taken"])
    serve.wait_for((serve.directory / "endpoint.json").exists)
    assert serve.codes() == ["plan_not_taken"]


def test_a_drafter_that_the_engine_would_read_wrong_is_refused_before_it_starts(campaign: Any) -> None:
    path = campaign.directory / "drafter/flat/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "draft_vocab_size": 41}))
    bench = campaign.start("bench", **SMALL)
    assert bench.end() == 1
    assert bench.codes() and bench.engine_pids() == []


def test_serve_gives_its_endpoint_to_the_owner_alone_and_takes_it_back(campaign: Any) -> None:
    serve = campaign.start("serve", outside={KEY_VARIABLE: "kept"})
    endpoint = serve.directory / "endpoint.json"
    serve.wait_for(endpoint.exists)
    assert stat.S_IMODE(endpoint.stat().st_mode) == 0o600
    found = json.loads(endpoint.read_text())
    assert found["served_model"] == "target" and found["depth"] == 3 and found["layout"] == "flat"
    assert found["api_key"] == "kept"
    with socket.create_connection(("127.0.0.1", found["port"]), timeout=5):
        pass
    serve.process.send_signal(signal.SIGTERM)
    assert serve.end() == 75
    assert not endpoint.exists()
    assert living(serve.engine_pids()) == []
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", found["port"]), timeout=5)


def test_a_service_tells_how_long_it_took_from_the_word_to_drafted_tokens(campaign: Any) -> None:
    serve = campaign.start("serve")
    serve.wait_for((serve.directory / "endpoint.json").exists)
    (line,) = serve.lines("launch")
    told = startup.read(line)
    assert json.loads((serve.directory / "endpoint.json").read_text())["launch"] == told
    assert (told["request"], told["supervisor"], told["waited"]) == (0.5, 1.5, 0.0)
    assert min(told.values()) >= 0.0
    assert told["total"] == pytest.approx(told["engine"] + told["overhead"], abs=0.05)


def test_the_key_of_an_endpoint_stands_in_no_other_file(campaign: Any) -> None:
    serve = campaign.start("serve")
    serve.wait_for((serve.directory / "endpoint.json").exists)
    key = json.loads((serve.directory / "endpoint.json").read_text())["api_key"]
    others = [path for path in serve.directory.iterdir() if path.name != "endpoint.json"]
    assert [path.name for path in others if key in path.read_text()] == []


def test_an_endpoint_that_does_not_draft_is_not_given_out(campaign: Any) -> None:
    serve = campaign.start("serve", env={"STAND_IN_NO_DRAFTS": "1"})
    assert serve.end() == 1
    assert serve.codes() == ["no_drafts_counted"]
    assert not (serve.directory / "endpoint.json").exists()


def test_a_served_engine_that_dies_fails_the_run(campaign: Any) -> None:
    serve = campaign.start("serve")
    serve.wait_for((serve.directory / "endpoint.json").exists)
    os.kill(serve.engine_pids()[0], signal.SIGKILL)
    assert serve.end() == 1
    assert serve.codes() == ["engine_failed"]
    assert not (serve.directory / "endpoint.json").exists()
