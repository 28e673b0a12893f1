"""A running server measured at several loads: what each tells, and what becomes of the rest when it is lost."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from eagle3_backend.control import loads, running
from eagle3_backend.control.running import RunningServer, Wanted, bench
from eagle3_backend.engines.answers import Prompt
from eagle3_backend.engines.metrics import Scrape
from eagle3_backend.findings import FindingError, error
from eagle3_backend.serving import running_server
from eagle3_tui import benchfile
from eagle3_tui.benchfigures import Bench, figures, not_comparable
from eagle3_tui.cli import app
from eagle3_tui.commands.running import bench_text

DRAFTED = ("--speculative-config", json.dumps({"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}))
TOLD = ("--per-request-spec-decode-metrics", "detailed")
SGLANG = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
SOURCES = ("chat", "code", "maths")
PROMPTS = [Prompt(str(number), SOURCES[number % 3], f"Question {number}: why is it so?") for number in range(12)]
BOTH = Wanted(12, 24, (1, 4))
WAITING = ("first_token_ms", "gap_ms", "token_ms")


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(running, "RESAMPLES", 50)


def found(answer, code):
    return [finding for finding in answer["findings"] if finding["code"] == code]


@pytest.mark.parametrize(("engine", "flags"), [("vllm", (*DRAFTED, *TOLD)), ("sglang", SGLANG)])
def test_each_load_tells_speed_waiting_times_and_acceptance(serve, engine, flags):
    answer = bench(RunningServer(serve(engine, *flags), "secret"), PROMPTS, BOTH)
    assert [(row["way"], row["depth"], row["concurrency"], row["rounds"]) for row in answer["cells"]] == [
        ("served", 3, 1, 12), ("served", 3, 4, 3)
    ]  # fmt: skip
    for row in answer["cells"]:
        assert row["prompts"] == 12 and row["tokens_per_second"] > 0 and not row["shared"]
        assert all(row[name] is not None for name in WAITING)
        told = row["acceptance_length"]
        assert (told["steps"], told["over"]) == (12 * 12, "12 answers")
        by_source = {name: (one["prompts"], one["steps"]) for name, one in told["by_source"].items()}
        assert by_source == dict.fromkeys(SOURCES, (4, 4 * 12))
        for share, (low, high) in zip(told["by_position"], told["by_position_intervals"], strict=True):
            assert low <= share <= high and low < high
    first, second = (row["acceptance_length"] for row in answer["cells"])
    assert first["by_position"] == second["by_position"] and answer["acceptance"] == first
    assert answer["recipe"]["timed_answers"] == "streamed"


def test_where_answers_tell_no_steps_a_source_has_its_figure_only_from_rounds_of_one_prompt(serve):
    asked = [*PROMPTS[:6], Prompt("long", "refused", "x" * 2000)]
    cells = bench(RunningServer(serve("vllm", *DRAFTED), "secret"), asked, Wanted(7, 24, (1, 2)))["cells"]
    alone, together = (row["acceptance_length"] for row in cells)
    assert {name: one["steps"] for name, one in alone["by_source"].items()} == dict.fromkeys(SOURCES, 2 * 12)
    assert alone["steps"] == together["steps"] == 6 * 12 and together["by_source"] == {}
    assert alone["prompts"] == together["prompts"] == 6
    alone["by_source"]["code"]["prompts"] = 1
    told = bench_text({"cells": cells})
    assert "  chat         2." in told and "over 2 answers, 24 verify steps)" in told and "(one answer, 24 ver" in told


def test_long_documents_alone_stand_beside_those_of_a_campaign(serve):
    server = RunningServer(serve("vllm", *DRAFTED, *TOLD), "secret")
    long = [Prompt(source, source, f"Question about {source}.") for source in ("1k tokens", "6k tokens")]
    for prompts, name in ((long, "long_context"), ([*long, PROMPTS[0]], "published")):
        answer = bench(server, prompts, Wanted(3, 24, (1,)))
        assert list(answer["acceptance_length"]) == [name]


def test_other_traffic_costs_only_the_rounds_that_it_was_in(serve):
    answer = bench(RunningServer(serve("vllm", *DRAFTED, STAND_IN_STRANGER="5"), "secret"), PROMPTS, BOTH)
    assert [(row["rounds"], row["rounds_left_out"], row["prompts"]) for row in answer["cells"]] == [
        (11, 1, 11), (3, 0, 12)
    ]  # fmt: skip
    assert [row["acceptance_length"]["steps"] for row in answer["cells"]] == [11 * 12, 12 * 12]
    (told,) = found(answer, "endpoint_other_traffic")
    assert told["actual"] == 1


def test_where_the_server_was_never_ours_alone_speeds_are_told_as_shared(serve):
    server = RunningServer(serve("sglang", *SGLANG, STAND_IN_STRANGER="1"), "secret")
    (row,) = bench(server, PROMPTS[:3], Wanted(3, 24, (1,)))["cells"]
    assert row["shared"] and row["rounds_left_out"] == 0 and row["tokens_per_second"] > 0
    assert row["acceptance_length"]["steps"] == 3 * 12


def test_a_server_that_dies_during_the_sweep_leaves_what_was_measured(serve, monkeypatch):
    monkeypatch.setattr(loads, "RETRY", 0.01)
    monkeypatch.setattr(loads, "PATIENCE", 0.05)
    answer = bench(RunningServer(serve("vllm", *DRAFTED, STAND_IN_DEATH="16"), "secret"), PROMPTS, BOTH)
    assert [row["concurrency"] for row in answer["cells"]] == [1]
    assert answer["acceptance"]["steps"] == 12 * 12
    (lost,) = found(answer, "endpoint_lost")
    assert (lost["actual"], lost["expected"]) == (12, 24)
    assert "12 of 12 at 1 in flight, 0 of 12 at 4 in flight" in lost["message"]
    assert [(entry["way"], entry["loads_kept"]) for entry in answer["ways_lost"]] == [("served", 1)]


def test_a_server_that_leaves_its_streams_open_is_noticed_and_hung_up_on(serve, monkeypatch):
    for name, value in {"RETRY": 0.01, "PATIENCE": 0.05, "LOOK": 0.0, "BETWEEN": 0.0}.items():
        monkeypatch.setattr(loads, name, value)
    server = RunningServer(serve("vllm", *DRAFTED), "secret")
    real, ended = server.streamed, threading.Event()

    def away():
        raise FindingError(error("endpoint_unreachable", "Gone.", path="endpoint"))

    with socket.create_server(("127.0.0.1", 0)) as silent:

        def streamed(prompt, *rest):
            if prompt is not PROMPTS[5]:
                return real(prompt, *rest)
            for name in ("look", "identify"):
                monkeypatch.setattr(server, name, away)
            monkeypatch.setattr(server, "_parts", urlsplit(f"http://127.0.0.1:{silent.getsockname()[1]}"))
            try:
                return real(prompt, *rest)
            finally:
                ended.set()

        monkeypatch.setattr(server, "streamed", streamed)
        answer = bench(server, PROMPTS, BOTH)
        assert ended.wait(20)
    assert found(answer, "endpoint_lost")[0]["actual"] == 5


def test_a_server_that_fails_for_a_while_is_asked_again(serve, monkeypatch):
    monkeypatch.setattr(loads, "RETRY", 0.01)
    server = RunningServer(serve("vllm", *DRAFTED), "secret")
    real, left = server.streamed, [1]

    def streamed(*arguments):
        if left and arguments[0] is PROMPTS[5]:
            left.pop()
            raise FindingError(error("endpoint_refused", "Overloaded.", path="endpoint", actual=503))
        return real(*arguments)

    monkeypatch.setattr(server, "streamed", streamed)
    answer = bench(server, PROMPTS, replace(BOTH, concurrencies=(1,)))
    assert answer["acceptance"]["steps"] == 12 * 12
    assert found(answer, "endpoint_link_cut")[0]["actual"] == 1 and not answer["ways_lost"]


def test_a_refusal_in_the_middle_ends_the_sweep_and_is_told(serve, monkeypatch):
    server = RunningServer(serve("vllm", *DRAFTED), "secret")
    real = server.streamed

    def streamed(*arguments):
        if arguments[0] is PROMPTS[5]:
            raise FindingError(error("endpoint_key_refused", "It wants another key.", path="endpoint", actual=401))
        return real(*arguments)

    monkeypatch.setattr(server, "streamed", streamed)
    answer = bench(server, PROMPTS, BOTH)
    assert found(answer, "endpoint_key_refused") and found(answer, "endpoint_lost")[0]["actual"] == 5
    assert answer["cells"][0]["prompts"] == 5


def test_an_interrupt_leaves_what_was_measured_and_says_what_was_not(serve, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", "secret")
    real, asked = RunningServer.streamed, []

    def streamed(*arguments):
        asked.append(arguments)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(RunningServer, "streamed", streamed)
    file = tmp_path / "asked.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt.text}) + "\n" for prompt in PROMPTS))
    flags = ["--endpoint", serve("vllm", *DRAFTED, *TOLD), "--key-env", "MY_KEY", "--prompts", str(file)]
    ended = CliRunner().invoke(app, ["bench", *flags, "--concurrency", "1,4", "--json"])
    assert ended.exit_code == 130
    answer = json.loads(ended.stdout)
    assert "5 of 12 at 1 in flight, 0 of 12 at 4 in flight" in found(answer, "bench_interrupted")[0]["message"]
    assert answer["acceptance"]["over"] == "5 answers"


def test_another_server_behind_the_same_address_is_not_measured_on(serve, cut, monkeypatch):
    server = RunningServer(serve("vllm", *DRAFTED), "secret")
    monkeypatch.setattr(server, "identify", lambda: replace(server.identity, version="9.9"))
    cut(6, 1)
    answer = bench(server, PROMPTS, BOTH)
    assert found(answer, "endpoint_changed") and 0 < answer["cells"][0]["prompts"] < 12


@pytest.mark.parametrize(("at", "steps"), [(5, 12), (4, 11)], ids=["between", "within"])
def test_counters_that_begin_anew_are_told_and_a_round_across_that_is_left_out(serve, monkeypatch, at, steps):
    server = RunningServer(serve("vllm", *DRAFTED), "secret")
    real, seen = server.scrape, []

    def scrape():
        page = real().samples
        seen.append(page)
        base = seen[at - 2] if len(seen) >= at else {}
        return Scrape({series: value - base.get(series, 0.0) for series, value in page.items()})

    monkeypatch.setattr(server, "scrape", scrape)
    answer = bench(server, PROMPTS, replace(BOTH, concurrencies=(1,)))
    assert found(answer, "counters_reset")[0]["actual"] == 1
    assert answer["acceptance"]["steps"] == 12 * steps and not found(answer, "endpoint_other_traffic")


def test_a_server_that_does_not_stream_tells_everything_but_waiting_times(serve, monkeypatch):
    urls = {"sglang": serve("sglang", *SGLANG, STAND_IN_OLD="1"), "vllm": serve("vllm", *DRAFTED)}
    answers = {"sglang": bench(RunningServer(urls["sglang"], "secret"), PROMPTS, BOTH)}
    monkeypatch.setattr(running_server, "stream_body", running_server.chat_body)
    answers["vllm"] = bench(RunningServer(urls["vllm"], "secret"), PROMPTS, BOTH)
    for name, why in {"sglang": "does not tell verify steps", "vllm": "answers as a whole"}.items():
        assert why in found(answers[name], "endpoint_not_streamed")[0]["message"]
        assert answers[name]["recipe"]["timed_answers"] == "whole"
        for row in answers[name]["cells"]:
            assert row["acceptance_length"]["steps"] == 12 * 12 and row["tokens_per_second"] > 0
            assert all(row[each] is None for each in WAITING)


def test_loads_beyond_the_server_or_the_prompts_and_refused_prompts_are_told_once(serve):
    url = serve("sglang", *SGLANG)
    answer = bench(RunningServer(url, "secret"), PROMPTS, Wanted(12, 4, (4, 64)))
    assert [entry["actual"] for entry in found(answer, "concurrency_not_reached")] == [12, 48]
    long = Prompt("long", "file", "x" * 2000)
    answer = bench(RunningServer(serve("vllm", *DRAFTED), "secret"), [*PROMPTS, long], BOTH)
    assert len(found(answer, "prompt_refused")) == 1
    assert [row["prompts"] for row in answer["cells"]] == [12, 12]


def test_the_command_gives_a_table_a_report_and_what_the_results_compare(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    file = tmp_path / "asked.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt.text}) + "\n" for prompt in PROMPTS))
    flags = ["--endpoint", serve("vllm", *DRAFTED, *TOLD), "--key-env", "MY_KEY", "--prompts", str(file)]
    flags += ["--concurrency", "4,1", "--max-new-tokens", "24"]
    ended = CliRunner().invoke(app, ["bench", *flags])
    assert ended.exit_code == 0 and "4 in flight: 12 of 12 prompts" in ended.stderr
    heads = next(line for line in ended.stdout.splitlines() if line.startswith("load"))
    assert "speed-up" not in heads and "first ms" in heads and "gap ms" in heads
    assert ended.stdout.count("by position") == 2 and ended.stdout.count("served, depth 3") == 2
    report = CliRunner().invoke(app, ["bench", *flags, "--markdown"]).stdout
    assert "## Acceptance at each load" in report and "| 4 | served, depth 3 |" in report
    told = tmp_path / "told.json"
    told.write_text(CliRunner().invoke(app, ["bench", *flags, "--json"]).stdout)
    answer = json.loads(told.read_text())
    opened = benchfile.read(str(told))
    assert opened.summary == answer and opened.title == f"told.json, {flags[1]}, vllm stand-in"
    rows = {figure.name: figure.values for figure in figures([Bench("a", answer), Bench("b", answer)])}
    assert rows["length, depth 3, published"][0].startswith(f"{answer['acceptance']['mean']:.2f} (")
    assert rows["  accepted by position"][0].count(" to ") == 3
    assert not_comparable([Bench("a", answer), Bench("b", {"recipe": {"temperature": 1.0}})]) == ["temperature"]
