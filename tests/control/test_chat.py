"""Talking to an endpoint, and ways to it that are cut: a stand-in for vLLM that says its answer letter by letter."""

from __future__ import annotations

import json
import re
import threading

import pytest
from typer.testing import CliRunner

from eagle3_backend.control import loads, running
from eagle3_backend.control.running import Chat, RunningServer, Wanted
from eagle3_backend.engines.answers import Prompt
from eagle3_backend.findings import FindingError
from eagle3_tui import places
from eagle3_tui.cli import app

DRAFTED = ("--speculative-config", json.dumps({"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}))
TOLD = ("--per-request-spec-decode-metrics", "detailed")
HELLO = [{"role": "user", "content": "Say it backwards."}]
PROMPTS = [Prompt(str(number), "file", f"Question {number}: why is it so?") for number in range(12)]


def code(act):
    with pytest.raises(FindingError) as problem:
        act()
    assert "secret" not in str(problem.value)
    return problem.value.findings[0].code


def test_an_answer_comes_in_pieces_and_tells_what_it_took(serve):
    chat = Chat(serve("vllm", *DRAFTED), "secret", "target")
    assert "".join(chat.say(HELLO, 24)) == HELLO[0]["content"][::-1]
    told = chat.figures
    assert (told.tokens, told.finish_reason, told.cancelled) == (24, "length", False)
    assert told.seconds_to_first_token is not None and told.tokens_per_second > 0
    steps = [(ord(HELLO[0]["content"][at % 17]) * 31 + at * at) % 997 % 4 for at in range(12)]
    assert told.acceptance_length == pytest.approx(1 + sum(steps) / 12, abs=1e-3)


def test_acceptance_is_not_told_where_others_were_served_or_nothing_was_drafted(serve):
    for url in (serve("vllm", *DRAFTED, STAND_IN_STRANGER="1"), serve("vllm")):
        chat = Chat(url, "secret", "target")
        list(chat.say(HELLO, 24))
        assert chat.figures.tokens == 24 and chat.figures.acceptance_length is None


def test_an_answer_can_be_cancelled_from_another_thread(serve):
    chat = Chat(serve("vllm", *DRAFTED, STAND_IN_SECONDS="0.2"), "secret", "target")
    said = []
    for piece in chat.say(HELLO, 24):
        said.append(piece)
        if len(said) == 2:
            threading.Thread(target=chat.cancel).start()
    assert len(said) < len(HELLO[0]["content"])
    assert chat.figures.cancelled and chat.figures.finish_reason == "cancelled"


def test_an_answer_that_breaks_off_and_a_refusal_are_findings_without_the_key(serve, monkeypatch):
    cut_off = serve("vllm", *DRAFTED, STAND_IN_CUT="5")
    cut = Chat(cut_off, "secret", "target")
    said = []
    assert code(lambda: said.extend(cut.say(HELLO, 24))) == "chat_broken_off"
    monkeypatch.setenv("MY_KEY", "secret")
    flags = ("--endpoint", cut_off, "--key-env", "MY_KEY", "--max-tokens", "24", "--json")
    ended = CliRunner().invoke(app, ["chat", HELLO[0]["content"], *flags])
    told = json.loads(ended.stdout)
    assert ended.exit_code == 1 and told["text"] == "".join(said)
    assert "broke off after 5 characters" in told["findings"][0]["message"]
    assert "".join(said) == HELLO[0]["content"][::-1][:5]
    url = serve("vllm")
    assert code(lambda: list(Chat(url, "wrong", "target").say(HELLO, 24))) == "endpoint_key_refused"
    long = [{"role": "user", "content": "x" * 2000}]
    assert code(lambda: list(Chat(url, "secret", "target").say(long, 24))) == "endpoint_refused"
    assert code(lambda: list(Chat("http://127.0.0.1:1/v1", "secret", "target").say(HELLO))) == "chat_broken_off"


def test_the_command_prints_the_answer_or_one_object_and_never_the_key(serve, monkeypatch):
    url = serve("vllm", *DRAFTED)
    monkeypatch.setenv("MY_KEY", "secret")
    flags = ("--endpoint", url, "--key-env", "MY_KEY", "--max-tokens", "24")
    ended = CliRunner().invoke(app, ["chat", HELLO[0]["content"], *flags])
    assert ended.exit_code == 0 and ended.stdout == HELLO[0]["content"][::-1] + "\n"
    assert re.search(r"24 tokens, .* tokens/s, .*acceptance length \d\.\d\d", ended.stderr)
    ended = CliRunner().invoke(app, ["chat", "-", "--json", *flags], input=HELLO[0]["content"])
    answer = json.loads(ended.stdout)
    assert answer["text"] == HELLO[0]["content"][::-1] and answer["tokens"] == 24
    assert "secret" not in ended.output


def test_a_server_on_the_hosts_loopback_is_reached_through_a_tunnel(serve, campaign, monkeypatch):
    port = serve("vllm", *DRAFTED).rpartition(":")[2].removesuffix("/v1")
    monkeypatch.setattr(places, "open_control", lambda: campaign.control(opened=False))
    monkeypatch.setenv("MY_KEY", "secret")
    flags = ("--endpoint", f"embedded:{port}", "--key-env", "MY_KEY", "--profile", str(campaign.profile), "--json")
    answer = json.loads(CliRunner().invoke(app, ["check", *flags]).stdout)
    assert answer["drafts"] and answer["endpoint"] != f"http://127.0.0.1:{port}"
    other = CliRunner().invoke(app, ["check", "--endpoint", "elsewhere.invalid:1", *flags[2:]])
    assert json.loads(other.stdout)["findings"][0]["code"] == "endpoint_unreachable"


def test_a_bench_whose_way_is_cut_asks_the_round_again_and_says_so(serve, cut):
    url = serve("vllm", *DRAFTED)
    whole = running.bench(RunningServer(url, "secret"), PROMPTS, Wanted(12, 24, (4,)))
    server = RunningServer(serve("vllm", *DRAFTED), "secret")
    cut(8, 3)  # in the second round, after its scrape
    answer = running.bench(server, PROMPTS, Wanted(12, 24, (4,)))
    assert "endpoint_link_cut" in [found["code"] for found in answer["findings"]]
    for name in ("mean", "steps", "by_position"):
        assert answer["acceptance"][name] == whole["acceptance"][name]


def test_a_bench_that_loses_its_server_keeps_what_was_measured_and_says_what_is_lost(serve, cut, monkeypatch):
    monkeypatch.setattr(loads, "PATIENCE", 0.05)
    server = RunningServer(serve("vllm", *DRAFTED, *TOLD), "secret")
    cut(8, 10**6)
    answer = running.bench(server, PROMPTS, Wanted(12, 24, (4,)))
    (lost,) = [found for found in answer["findings"] if found["code"] == "endpoint_lost"]
    assert (lost["actual"], lost["expected"]) == (4, 12)
    assert answer["acceptance"]["steps"] == 4 * 12
