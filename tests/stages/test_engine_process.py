"""Private engines of stages, with a program that stands in for the server."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from eagle3_backend.engines.log_rules import START
from eagle3_backend.findings import FindingError
from eagle3_backend.stages import engine_process
from eagle3_backend.stages.context import Stopped
from eagle3_backend.stages.engine_http import RequestRefused, request
from eagle3_backend.stages.engine_process import EngineProcess, port_is_free, session_members


@pytest.fixture
def engine(attempt, stand_in):
    def make(ways="", context=None):
        return EngineProcess(stand_in(WAYS=ways), model="/target", context=context or attempt("generate"))

    return make


def test_a_server_is_ready_only_when_it_answers_and_gone_when_it_is_left(engine):
    with engine() as running:
        answer = request(running.port, running.api_key, "GET", "/v1/models")
        assert answer["data"][0]["id"] == "target"
        pid, port = running.pid, running.port
        assert os.getsid(pid) == pid
    assert session_members(pid) == []
    assert port_is_free(port)


def test_a_key_handed_over_in_a_file_is_its_owners_alone_and_goes_with_the_server(attempt, stand_in):
    context, plan = attempt("generate"), stand_in()
    plan = {**plan, "argv": [*plan["argv"], "--config", "{config}"], "api_key": {"file": "api-key"}}
    path = context.run_directory / "engine.yaml"
    with EngineProcess(plan, model="/target", context=context) as running:
        assert path.read_text() == f'api-key: "{running.api_key}"\n'
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def test_a_failing_start_tells_the_first_cause_of_the_log(engine):
    with pytest.raises(FindingError) as raised, engine("die"):
        pass
    assert raised.value.findings[0].code == "oom_startup"
    assert "CUDA out of memory" in raised.value.findings[0].message


def test_a_port_that_is_taken_is_tried_again_with_others_and_then_told(engine, attempt):
    context = attempt("generate")
    with pytest.raises(FindingError) as raised, engine("taken", context):
        pass
    assert raised.value.findings[0].code == "port_in_use"
    starts = [line["text"] for line in context.lines("note") if line["text"].startswith("Starting the engine")]
    assert len(starts) == engine_process.PORT_TRIES


def test_a_server_that_answers_for_another_model_is_never_ready_and_another_port_is_tried(engine, attempt):
    context = attempt("generate")
    with pytest.raises(FindingError) as raised, engine("foreign", context):
        pass
    finding = raised.value.findings[0]
    assert (finding.code, finding.expected, finding.actual) == ("port_in_use", "target", ["theirs"])
    starts = [line["text"] for line in context.lines("note") if line["text"].startswith("Starting the engine")]
    assert len(starts) == engine_process.PORT_TRIES


def test_a_worker_that_dies_while_serving_is_noticed(engine):
    with engine("worker") as running:
        for _ in range(2):
            chat(running)
        with pytest.raises(OSError):
            chat(running)
        wait_until_gone(running.pid)
        with pytest.raises(FindingError) as raised:
            running.check()
    assert raised.value.findings[0].code == "engine_worker_died"


def chat(running):
    body = {"messages": [{"role": "user", "content": "Good morning"}], "max_tokens": 8}
    return request(running.port, running.api_key, "POST", "/v1/chat/completions", body)


def wait_until_gone(pid):
    end = time.monotonic() + 20
    while session_members(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_and_a_child_that_ignore_the_request_to_end_are_killed(engine, monkeypatch):
    monkeypatch.setattr(engine_process, "END_SECONDS", 0.5)
    with engine("stubborn") as running:
        pid = running.pid
        assert len(session_members(pid)) == 2
    assert session_members(pid) == []


def test_a_server_that_ignores_the_request_to_end_while_it_loads_is_not_waited_for_long(engine, attempt, monkeypatch):
    monkeypatch.setattr(engine_process, "END_SECONDS", 600.0)
    monkeypatch.setattr(engine_process, "LOADING_END_SECONDS", 0.5)
    context = attempt("generate")
    process = engine("silent,stubborn", context)
    threading.Thread(target=leave_when_loading, args=(context,), daemon=True).start()
    with pytest.raises(Stopped), process:
        pass
    assert context.codes() == []


def leave_when_loading(context):
    while not any(line["text"].startswith("Engine: ") for line in context.lines("note")):
        time.sleep(0.05)
    context.ask_to_leave()


def test_a_stage_that_is_asked_to_leave_during_a_start_leaves_and_ends_the_server(engine, attempt):
    context = attempt("generate")
    threading.Timer(1.0, context.ask_to_leave).start()
    process = engine("silent", context)
    with pytest.raises(Stopped), process:
        pass
    pids = [int(line["text"].rsplit(" ", 1)[1]) for line in context.lines("note") if "process" in line["text"]]
    assert len(pids) == 1
    assert session_members(pids[0]) == []


def test_a_first_completion_that_hangs_is_told_and_keeps_no_stop_waiting(engine, attempt, monkeypatch):
    monkeypatch.setattr(engine_process, "ANSWER_SECONDS", 0.2)
    context = attempt("generate")
    threading.Thread(target=leave_when_told, args=(context,), daemon=True).start()
    process = engine("mute", context)
    with pytest.raises(Stopped), process:
        pass
    assert context.codes() == ["startup_hang"]
    assert process.answered == 0.0


def leave_when_told(context):
    while not context.lines("finding"):
        time.sleep(0.05)
    context.ask_to_leave()


def test_bytes_that_are_no_text_and_a_line_of_ten_megabytes_do_not_stop_a_start(engine):
    with engine("noise") as running:
        assert running.log.ready_marker


def test_the_key_of_a_server_is_its_own_and_stands_in_no_argument(engine):
    with engine() as first:
        key = first.api_key
        with open(f"/proc/{first.pid}/cmdline") as file:
            assert key not in file.read()
    with engine() as second:
        assert second.api_key != key


def test_a_key_that_a_server_prints_is_not_passed_on(engine, capfd):
    with engine("tell") as running:
        key = running.api_key
    told = capfd.readouterr().out
    assert "server_args={'api_key': '***'}" in told
    assert key not in told


def test_a_refused_request_says_what_the_server_said(engine):
    with engine() as running, pytest.raises(RequestRefused, match="maximum context length") as raised:
        body = {"messages": [{"role": "user", "content": "x" * 500}], "max_tokens": 8}
        request(running.port, running.api_key, "POST", "/v1/chat/completions", body)
    assert raised.value.status == 400


@pytest.mark.parametrize(("budget", "codes"), [(0.3, ["startup_hang"]), (120.0, [])])
def test_a_start_that_is_silent_beyond_its_phase_s_time_is_reported_once_and_waited_for(
    engine, attempt, monkeypatch, budget, codes
):
    monkeypatch.setitem(START["vllm"].budgets, "weights", budget)
    context = attempt("generate")
    threading.Timer(2.0, context.ask_to_leave).start()
    with pytest.raises(Stopped), engine("silent", context):
        pass
    assert context.codes() == codes


def test_a_port_in_use_is_not_free():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not port_is_free(taken.getsockname()[1])


def test_a_server_takes_the_port_that_it_is_given_unless_somebody_listens_there(attempt, stand_in):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with EngineProcess(stand_in(), model="/target", context=attempt("generate"), port=port) as elsewhere:
            assert elsewhere.port != port
    with EngineProcess(stand_in(), model="/target", context=attempt("generate"), port=port) as there:
        assert there.port == port
