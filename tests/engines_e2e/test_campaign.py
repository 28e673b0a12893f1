"""The campaign end to end: what a newcomer's `make demo` must reach, from the engine's own counters."""

from __future__ import annotations

import json
import urllib.request

import pytest

from eagle3_backend.engines import startup

pytestmark = pytest.mark.engines

NESTED = (
    'bench.layout="nested"',
    "bench.in_domain=24",
    "bench.published=24",
    "bench.speed_prompts=2",
    "bench.lossless_prompts=2",
    "bench.raw_prompts=0",
    "bench.concurrencies=[2]",
)


@pytest.fixture(scope="module")
def result(campaign):
    return campaign["result"]


def interval(result, name):
    figure = result["acceptance_length"][name]
    return figure["low"], figure["mean"], figure["high"]


def summary_of(laptop, stage):
    """The summary in the manifest of the stage's only artifact of this campaign."""
    output = laptop.stages()[stage]["output"]
    with open(f"{output}/manifest.json", encoding="utf-8") as file:
        return json.load(file)["summary"]


def test_the_result_has_the_promised_shape(campaign, result):
    assert campaign["stage"] == "bench" and campaign["reached"] is True
    assert isinstance(campaign["fresh"], bool)
    assert set(result["acceptance_length"]) >= {"in_domain", "published"}
    for figure in (*result["acceptance_length"].values(), result["speedup_c1"]):
        assert {"mean", "low", "high"} <= set(figure)
    assert 0 <= result["recommended_depth"] <= 3
    assert {"lossless_equal", "lossless_total"} <= set(result)


def test_intervals_hold_their_mean(result):
    for name in ("in_domain", "published"):
        low, mean, high = interval(result, name)
        assert 1.0 <= low <= mean <= high <= 4.0
    speed = result["speedup_c1"]
    assert 0 < speed["low"] <= speed["mean"] <= speed["high"]


def test_in_domain_acceptance_is_reached(result):
    assert result["acceptance_length"]["in_domain"]["mean"] >= 1.8


def test_acceptance_on_published_prompts_is_reached(result):
    assert result["acceptance_length"]["published"]["mean"] >= 1.25


def test_the_overlap_with_the_training_text_is_told(result):
    for name in ("in_domain", "published"):
        assert result["acceptance_length"][name]["overlap_13gram"]


def test_greedy_texts_are_the_same_with_and_without_the_drafter(result):
    assert result["lossless_total"] >= 20
    assert result["lossless_equal"] == result["lossless_total"]


def test_the_speed_stands_beside_the_waiting_times_of_the_stream(result):
    none, mine = result["cells"]
    assert (none["way"], mine["way"], mine["depth"], mine["rounds_left_out"]) == ("none", "mine", 3, 0)
    assert mine["speedup"] == result["speedup_c1"]
    for cell in (none, mine):
        for name in ("first_token_ms", "gap_ms"):
            assert 0 < cell[name]["p50"]["low"] <= cell[name]["p50"]["mean"] <= cell[name]["p99"]["mean"]
    # With a drafter an arrival brings several tokens.
    assert mine["gap_ms"]["p50"]["mean"] > mine["token_ms"]["mean"]


def test_raw_text_is_drafted_worse_than_chats(result):
    control = result["controls"]["raw_text"]
    assert control["raw"] < control["chat"] and control["failed_as_it_must"] is not False


def test_at_most_five_engines_are_started(campaign):
    assert 1 <= campaign["engine_starts"] <= 5


def test_the_cost_is_told(campaign):
    assert campaign["cpu_seconds"] > 0 and campaign["wall_seconds"] > 0


def test_offline_acceptance_is_close_to_the_engines(laptop, result):
    """The same drafter on the same kind of text, without an engine; dtypes and the choice of prompts differ."""
    ended = laptop.call("run", "--through", "evaluate", "--json", timeout=300)
    assert ended.code == 0, ended.stderr[-4000:]
    offline = summary_of(laptop, "evaluate")["acceptance_length"]
    _, mean, _ = interval(result, "in_domain")
    assert offline["mean"] == pytest.approx(mean, rel=0.15)


def test_plain_torch_predicts_every_verify_step_of_the_engine(make_laptop, published, campaign):
    laptop = make_laptop(*published, "diagnose.requests=168", "diagnose.tried=12")
    ended = laptop.call("run", "--through", "diagnose", "--json", timeout=900)
    assert ended.code == 0, ended.stderr[-4000:]
    verdict = ended.json["result"]
    print(json.dumps(verdict))
    assert verdict["verdict"] == "engine_runs_the_drafter"
    assert verdict["steps"] > 1000 and verdict["equal_share"] >= 0.999
    assert all(control["failed_as_it_must"] for control in verdict["controls"].values())


def test_the_engines_own_profiler_tells_where_a_decode_step_goes(make_laptop, published, campaign):
    sizes = ("trace.concurrency=4", "trace.max_new_tokens=48", "trace.steps=8", "trace.control=false")
    ended = make_laptop(*published, *sizes).call("run", "--through", "trace", "--json", timeout=900)
    assert ended.code == 0, ended.stderr[-4000:]
    drafted = ended.json["result"]["drafted"]
    print(json.dumps(drafted))
    assert drafted["steps"] >= 4 and drafted["requests"] == 4
    assert sum(drafted["shares"].values()) == pytest.approx(1.0, abs=1e-3)
    assert all(drafted["shares"][name] > 0 for name in ("attention", "gemm", "drafter"))
    assert drafted["drafter"]["told_by"] == "annotations" and drafted["unknown_share"] < 0.05
    gains = ended.json["result"]["gains"]
    assert gains["length"]["mean"] >= 1.0 and 0 < gains["draft_ms"]["mean"] < gains["step_ms"]["mean"]


def test_a_second_call_does_nothing_and_gives_the_same_result(laptop, campaign):
    before = laptop.runs()
    ended = laptop.call("run", "--through", "bench", "--json")
    assert ended.code == 0
    assert ended.json["fresh"] is True and ended.json["runs"] == []
    assert ended.json["result"] == campaign["result"]
    assert laptop.runs() == before


def test_every_stage_on_the_way_is_fresh_and_its_journal_is_here_line_for_line(laptop, campaign):
    stages = laptop.stages()
    on_the_way = [name for name in stages if name not in ("serve", "diagnose", "trace")]
    assert [name for name in on_the_way if not stages[name]["fresh"]] == []
    compared = 0
    for run in campaign["runs"]:
        for attempt in laptop.runs().get(run, []):
            host = (attempt / "journal.jsonl").read_text(encoding="utf-8").splitlines()
            assert laptop.stored_journal(run, int(attempt.name)) == host
            compared += len(host)
    assert compared > 0 or not campaign["runs"]


def test_both_exported_layouts_are_accepted_alike_by_the_engine(make_laptop, published, campaign, result):
    ended = make_laptop(*published, *NESTED).call("run", "--through", "bench", "--json", timeout=900)
    assert ended.code == 0, ended.stderr[-4000:]
    for name in ("in_domain", "published"):
        low, _, high = interval(result, name)
        other_low, _, other_high = interval(ended.json["result"], name)
        assert other_low <= high and low <= other_high, name
    cells = [(cell["way"], cell["concurrency"]) for cell in ended.json["result"]["cells"]]
    assert cells == [("none", 1), ("mine", 1), ("none", 2), ("mine", 2)]
    assert 1 < ended.json["result"]["cells"][3]["in_flight"] <= 2
    assert [cell.get("rounds_left_out") for cell in ended.json["result"]["cells"]] == [None, 0, None, 0]


def test_serve_answers_through_the_tunnel_and_leaves_when_stopped(laptop, campaign):
    tunnel = laptop.begin("serve", "--json")
    endpoint = json.loads(tunnel.stdout.readline())
    assert set(endpoint["launch"]) >= {"total", "engine", "waited", "overhead"}
    print(startup.words(endpoint["launch"]))
    request = urllib.request.Request(
        f"{endpoint['base_url']}/chat/completions",
        json.dumps(
            {"model": endpoint["model"], "max_tokens": 16, "messages": [{"role": "user", "content": "Name a colour."}]}
        ).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {endpoint['api_key']}"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answer = json.load(response)
    assert answer["usage"]["completion_tokens"] > 0
    said = laptop.call("chat", "Name three colours.", "--max-tokens", "48", "--json").json
    assert said["text"] and said["tokens"] > 1 and said["tokens_per_second"] > 0
    assert 1.0 <= said["acceptance_length"] <= 4.0
    assert laptop.call("stop", "serve", "--json").json["stages"]["serve"] == "stopped"
    tunnel.communicate(timeout=60)
    assert tunnel.returncode == 6


def test_a_new_laptop_finds_the_campaign_as_it_is(make_laptop, published, campaign):
    stages = make_laptop(*published).stages()
    assert stages["bench"]["state"] == "done" and stages["bench"]["fresh"]
