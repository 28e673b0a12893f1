"""Servers that this product did not start: stand-ins for both engines, asked through their URL."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from eagle3_backend import hub
from eagle3_backend.control.running import Drafter, RunningServer, Wanted, bench, check, read_prompts
from eagle3_backend.engines.answers import Prompt
from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.conversations import read_records
from eagle3_tui.cli import app

DRAFTED = ("--speculative-config", json.dumps({"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}))
TOLD = ("--per-request-spec-decode-metrics", "detailed")
SGLANG = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
PROMPTS = [Prompt(str(number), "file", f"Question {number}: why is it so?") for number in range(12)]
FEW = Wanted(12, 24, (4,))


def codes(answer):
    return [found["code"] for found in answer["findings"]]


def refused(act):
    with pytest.raises(FindingError) as problem:
        act()
    return [finding.code for finding in problem.value.findings]


def test_both_engines_tell_the_same_acceptance_of_the_same_answers(serve):
    figures = {}
    for name, url in {"vllm": serve("vllm", *DRAFTED, *TOLD), "sglang": serve("sglang", *SGLANG)}.items():
        answer = bench(RunningServer(url, "secret"), PROMPTS, FEW)
        assert answer["server"]["engine"] == name
        figures[name] = answer["acceptance"]
    assert figures["vllm"] == figures["sglang"]
    assert figures["vllm"]["steps"] == 12 * 12 and figures["vllm"]["depth"] == 3
    assert figures["vllm"]["mean"] == pytest.approx(1 + sum(figures["vllm"]["by_position"]), abs=1e-3)


def test_without_figures_of_single_answers_the_counters_tell_the_same_over_rounds(serve):
    told = bench(RunningServer(serve("vllm", *DRAFTED, *TOLD), "secret"), PROMPTS, FEW)
    silent = bench(RunningServer(serve("vllm", *DRAFTED), "secret"), PROMPTS, FEW)
    assert (told["acceptance"]["source"], silent["acceptance"]["source"]) == ("answers", "counters")
    assert silent["acceptance"]["over"] == "3 rounds"
    for name in ("mean", "steps", "by_position", "depth"):
        assert told["acceptance"][name] == silent["acceptance"][name]
    assert "replay_possible" in codes(told)
    (missing,) = [found for found in silent["findings"] if found["code"] == "replay_not_possible"]
    assert "--per-request-spec-decode-metrics" in missing["message"]


def test_rounds_in_which_others_were_served_are_told_and_left_out(serve):
    alone = bench(RunningServer(serve("vllm", *DRAFTED), "secret"), PROMPTS[4:], FEW)
    shared = bench(RunningServer(serve("vllm", *DRAFTED, STAND_IN_STRANGER="2"), "secret"), PROMPTS, FEW)
    assert "endpoint_other_traffic" in codes(shared)
    assert shared["acceptance"]["mean"] == alone["acceptance"]["mean"]
    assert shared["acceptance"]["steps"] == 8 * 12


def test_what_answers_tell_holds_beside_other_traffic(serve):
    alone = bench(RunningServer(serve("sglang", *SGLANG), "secret"), PROMPTS, FEW)
    shared = bench(RunningServer(serve("sglang", *SGLANG, STAND_IN_STRANGER="1"), "secret"), PROMPTS, FEW)
    assert "endpoint_other_traffic" in codes(shared)
    assert shared["acceptance"] == alone["acceptance"]


def test_counters_that_were_never_ours_alone_give_no_figure(serve):
    answer = bench(RunningServer(serve("vllm", *DRAFTED, STAND_IN_STRANGER="2"), "secret"), PROMPTS[:4], FEW)
    assert answer["acceptance"] is None
    assert "endpoint_never_alone" in codes(answer)


def test_a_server_without_a_drafter_is_told(serve):
    server = RunningServer(serve("vllm"), "secret")
    assert codes(check(server, None)) == ["no_drafts_counted"]
    answer = bench(server, PROMPTS, FEW)
    assert answer["acceptance"] is None and codes(answer)[0] == "no_drafts_counted"


def test_check_judges_a_drafter_for_the_release_that_runs(serve, drafters):
    good, target = drafters.checkpoint(), drafters.TARGET
    server = RunningServer(serve("sglang", *SGLANG), "secret")
    answer = check(server, Drafter(good.config, good.inventory(), target))
    assert answer["drafts"] and answer["server"]["version"] == "0.5.23" and answer["server"]["method"] == "eagle3"
    assert [found for found in answer["findings"] if found["severity"] == "error"] == []
    nested = drafters.checkpoint(layout="nested")
    errors = check(server, Drafter(nested.config, nested.inventory(), target))["findings"]
    assert any(found["severity"] == "error" for found in errors)


def test_the_wrong_algorithm_is_named(serve, drafters):
    url = serve("sglang", "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3")
    assert "spec_algorithm_mismatch" in codes(
        check(RunningServer(url, "secret"), Drafter(drafters.checkpoint().config))
    )


def test_what_cannot_be_reached_or_entered_says_so(serve):
    assert refused(lambda: RunningServer("ftp://x")) == ["endpoint_url_invalid"]
    assert refused(lambda: RunningServer("http://127.0.0.1:1")) == ["endpoint_unreachable"]
    url = serve("sglang", *SGLANG)
    assert refused(lambda: bench(RunningServer(url, "wrong"), PROMPTS, FEW)) == ["endpoint_key_refused"]
    assert refused(lambda: RunningServer(url, "secret", "other")) == ["endpoint_model_missing"]


def test_answers_that_the_end_of_the_context_cut_are_told(serve):
    room = str(len(PROMPTS[0].text) + FEW.max_new_tokens)
    answer = bench(RunningServer(serve("vllm", *DRAFTED, *TOLD, STAND_IN_ROOM=room), "secret"), PROMPTS, FEW)
    (told,) = [found for found in answer["findings"] if found["code"] == "prompt_beyond_context"]
    assert told["actual"] == sum(len(prompt.text) > len(PROMPTS[0].text) for prompt in PROMPTS) == 2


def test_prompts_come_evenly_from_the_files_and_none_is_refused(tmp_path):
    for name, count in (("a", 9), ("b", 3)):
        lines = [json.dumps({"prompt": f"{name} {number}?"}) for number in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    prompts, _, _ = read_prompts([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], Wanted(6))
    assert sorted(prompt.source for prompt in prompts) == ["a"] * 3 + ["b"] * 3
    (tmp_path / "empty.jsonl").write_text("")
    assert refused(lambda: read_prompts([str(tmp_path / "empty.jsonl")], FEW)) == ["prompt_set_empty"]


def test_prompts_come_from_a_data_set_by_its_name_and_the_recipe_tells_the_commit(serve, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    command = ["bench", "--endpoint", serve("vllm", *DRAFTED, *TOLD), "--key-env", "MY_KEY", "--json"]
    command += ["--prompts", "hub:lab/exam"]
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 1 and "huggingface_hub_missing" in ended.output and "eagle3-tui[hub]" in ended.output
    rows = read_records([(str(number), {"prompt": f"Question {number}?"}) for number in range(5)], "exam")[0]
    monkeypatch.setattr(hub, "fetch", lambda name, look: hub.Fetched(f"{name}@4f3c", tuple(rows), ()))
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    recipe = json.loads(ended.stdout)["recipe"]
    assert (recipe["prompts"], recipe["data_sets"]) == (5, ["hub:lab/exam@4f3c"])
    sources = [prompt.source for prompt in read_prompts(["long_context"], FEW)[0]]
    assert {name: sources.count(name) for name in sources} == {f"{number}k tokens": 2 for number in range(1, 7)}
    both = read_prompts(["long_context", "hub:lab/exam"], FEW)[0]
    assert {prompt.source for prompt in both} == {"long_context", "exam"}


def test_the_commands_need_no_host_and_take_the_key_from_a_variable(serve, monkeypatch):
    url = serve("vllm", *DRAFTED, *TOLD)
    monkeypatch.setenv("MY_KEY", "secret")
    ended = CliRunner().invoke(app, ["bench", "--endpoint", url, "--key-env", "MY_KEY", "--count", "8", "--json"])
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["acceptance"]["mean"] > 1
    ended = CliRunner().invoke(app, ["check", "--endpoint", url, "--key-env", "MY_KEY"])
    assert ended.exit_code == 0 and "drafts         yes" in ended.stdout
    ended = CliRunner().invoke(app, ["check", "--endpoint", url, "--key-env", "NO_SUCH_KEY"])
    assert ended.exit_code == 1 and "key_variable_empty" in ended.output
    for loads in ("0", "-1", "x", "1,,4", "1.5"):
        assert CliRunner().invoke(app, ["bench", "--endpoint", url, "--concurrency", loads]).exit_code == 2
    assert CliRunner().invoke(app, ["check"]).exit_code == 2
    assert CliRunner().invoke(app, ["bench", "--model", "m"]).exit_code == 2
