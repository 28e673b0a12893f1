"""`serve`, `endpoint` and `stop serve` against a facade that answers as it is told."""

from __future__ import annotations

import json
from concurrent.futures import Future

import pytest
from typer.testing import CliRunner

from eagle3_backend.control import commands as ask
from eagle3_backend.control.snapshot import Outcome, ServiceView, Snapshot, StageView, Started
from eagle3_backend.findings import FindingError, error
from eagle3_backend.states import RunState
from eagle3_tui import places
from eagle3_tui.cli import app

READY = {
    "run": "local-serve-1", "attempt": 1, "state": "running", "planned": True, "ready": True, "engine": "vllm",
    "layout": "flat", "depth": 3, "host_port": 41873, "base_url": "http://127.0.0.1:4/v1", "api_key": "k",
    "model": "target",
}  # fmt: skip
OTHER = {**READY, "run": "local-serve-2", "planned": False, "layout": "nested", "base_url": "http://127.0.0.1:5/v1"}
SERVING = Outcome("serve", "serve", RunState.RUNNING, True)
ENDED = Snapshot(stages=(StageView("serve", "", RunState.CRASHED),))


class Facade:
    """``views`` are shown one after the other, the last one for ever."""

    def __init__(self, answers, views):
        self.answers = {ask.Open: None, ask.Await: SERVING, **answers}
        self.asked, self.views = [], list(views)

    def submit(self, command):
        self.asked.append(command)
        future, answer = Future(), self.answers[type(command)]
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def snapshot(self):
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def close(self):
        pass


@pytest.fixture
def call(monkeypatch):
    def run(*argv, views=(ENDED,), **answers):
        facade = Facade({getattr(ask, name): answer for name, answer in answers.items()}, views)
        monkeypatch.setattr(places, "open_control", lambda: facade)
        result = CliRunner().invoke(app, argv)
        result.asked = facade.asked
        return result

    return run


def test_serve_tells_its_tunnel_and_the_endpoints_beside_it_and_leaves_when_it_ends(call):
    started = Started(("local-serve-1",), ())
    result = call("serve", "--json", Start=started, Services={"services": [READY, OTHER]})
    assert ask.Start("serve") in result.asked and ask.Services(True) in result.asked
    assert json.loads(result.stdout) == {**READY, "others": [OTHER]}
    assert result.exit_code == 6 and "serve has ended" in result.stderr


def test_a_swap_names_the_one_that_is_replaced(call):
    started = Started(("local-serve-1",), ())
    result = call(
        "serve", "--swap", "--run", "local-serve-2", "--detach", "--set", "serve.layout=flat",
        Swap=started, Services={"services": [READY]},
    )  # fmt: skip
    assert result.exit_code == 0
    assert ask.Swap((), "local-serve-2") in result.asked and ask.Services(False) in result.asked
    assert call("serve", "--run", "x").exit_code == 2


def test_an_ambiguous_swap_is_refused_with_the_names(call):
    problem = FindingError(error("service_ambiguous", "Which one?", expected=["a", "b"]))
    result = call("serve", "--swap", "--json", Swap=problem)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"][0]["expected"] == ["a", "b"]


def test_a_list_starts_nothing_and_opens_no_tunnel(call):
    result = call("serve", "--list", Services={"services": [READY, {**OTHER, "ready": False, "state": "starting"}]})
    assert result.exit_code == 0 and "local-serve-2  starting" in result.stdout
    assert not any(isinstance(command, ask.Start) for command in result.asked)


def test_a_service_that_does_not_come_up_ends_with_its_finding(call):
    found = error("oom_startup", "No memory.")
    outcome = Outcome("serve", "serve", RunState.FAILED, False, findings=(found,))
    result = call("serve", "--json", Start=Started(("r",), ()), Await=outcome)
    assert result.exit_code == 6 and "oom_startup" in result.stderr


def test_endpoint_prints_the_tunnel_and_stays_until_the_service_ends(call):
    answer = {"base_url": "http://127.0.0.1:4/v1", "api_key": "k", "port": 4, "model": "target", "run": "r"}
    at_work = Snapshot(stages=ENDED.stages, services=(ServiceView("r", 1, RunState.RUNNING),))
    result = call("endpoint", "--json", views=[at_work, at_work, ENDED], Endpoint=answer)
    assert json.loads(result.stdout) == answer
    assert result.exit_code == 6
    assert ask.Endpoint("r") in call("endpoint", "--run", "r", Endpoint=answer).asked


def test_another_endpoint_is_stopped_by_its_run_and_waited_for(call):
    at_work = Snapshot(stages=ENDED.stages, services=(ServiceView("r", 1, RunState.STOPPING),))
    result = call("stop", "serve", "--run", "r", "--json", views=[at_work, at_work, at_work, ENDED], Stop="stopping")
    assert result.exit_code == 0 and ask.Stop("serve", "r") in result.asked
    assert json.loads(result.stdout) == {"stages": {"serve": "stopped"}}
    assert call("stop", "train", "--run", "r").exit_code == 2
    result = call("stop", "--all", "--json", views=[at_work, at_work, at_work, ENDED], Stop="stopping")
    assert json.loads(result.stdout)["services"] == {"r": "stopped"}
    assert result.exit_code == 0 and ask.Stop("serve", "r") in result.asked
