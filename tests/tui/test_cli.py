"""The commands against a facade that answers as it is told."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from eagle3_backend.control import commands as ask
from eagle3_backend.control.snapshot import HostView, Outcome, Snapshot, StageView, Started
from eagle3_backend.findings import FindingError, error, warning
from eagle3_backend.states import LinkState, RunState
from eagle3_tui import places
from eagle3_tui.cli import app
from eagle3_tui.commands import campaign

FINGERPRINT = "SHA256:abc"
UNKNOWN_KEY = warning("ssh_host_key_unknown", "Not in known_hosts.", path="box", actual=FINGERPRINT)
CHANGED_KEY = error("ssh_host_key_changed", "Changed.", path="box", expected="SHA256:old", actual="SHA256:new")
UNREACHABLE = error("host_unreachable", "No answer.", path="box")
BENCH = {"acceptance_length": {"in_domain": {"mean": 1.9, "low": 1.8, "high": 2.0}}, "engine_starts": 3}
DONE = Outcome("bench", "bench", RunState.DONE, True, BENCH)
FORECAST = {
    "stages": [{"stage": "bench", "seconds": 240.0, "bytes": 2_000_000, "basis": "two CPU cores"}],
    "total": {"seconds": 240.0, "bytes": 2_000_000, "cost": 1.5},
}


class FakeControl:
    """Answers each kind of command with a value, an exception, or the next of a list of them."""

    def __init__(self, answers):
        self.answers = {ask.Open: None, ask.Forecast: FORECAST, ask.TrustHostKey: None, **answers}
        self.asked = []
        self.closed = False
        self.view = Snapshot(
            campaign="local",
            host=HostView("embedded", LinkState.LIVE),
            stages=(StageView("bench", "Comparison", RunState.DONE, summary={"seconds": 9.0, **BENCH}),),
        )

    def submit(self, command):
        self.asked.append(command)
        answer = self.answers[type(command)]
        if isinstance(answer, list):
            answer = answer.pop(0)
        future = Future()
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def snapshot(self):
        return self.view

    def close(self):
        self.closed = True


@pytest.fixture
def call(monkeypatch):
    """Run the command line on a fake facade; the fake hangs on the result as `.control`."""

    def run(*argv, answers=None, view=None, input=None):
        control = FakeControl(answers or {})
        control.view = view or control.view
        monkeypatch.setattr(places, "open_control", lambda: control)
        result = CliRunner().invoke(app, argv, input=input)
        result.control = control
        return result

    return run


def started(*runs, **rest):
    return {ask.Start: Started(runs, (), **rest), ask.Await: DONE}


def test_run_prints_one_json_object_and_nothing_else_on_standard_output(call):
    result = call("run", "--through", "bench", "--json", answers=started("local-bench-1"))
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["result"] == BENCH
    assert (answer["stage"], answer["fresh"], answer["runs"]) == ("bench", False, ["local-bench-1"])
    assert (answer["engine_starts"], answer["wall_seconds"]) == (3, 9.0)
    assert "forecast" in result.stderr


def test_a_second_run_is_fresh_and_gives_the_same_result(call):
    result = call("run", "--through", "bench", "--json", answers=started())
    answer = json.loads(result.stdout)
    assert (answer["fresh"], answer["runs"], answer["result"]) == (True, [], BENCH)


def test_the_forecast_tells_time_disk_and_money_before_the_start(call):
    result = call("run", "--through", "bench", answers=started("r"))
    kinds = [type(command) for command in result.control.asked]
    assert kinds.index(ask.Forecast) < kinds.index(ask.Start)
    assert "00:04:00" in result.stderr and "2.0 MB" in result.stderr and "1.50" in result.stderr


def test_options_reach_the_facade(call):
    result = call(
        *("--set", "train.epochs=2", "run", "--through", "bench", "--set", "bench.depth=2", "--smoke", "--only"),
        *("--restart", "--accept", "port_in_use"),
        answers=started("r"),
    )
    opened, start = result.control.asked[0], result.control.asked[1]
    assert (opened.settings, opened.smoke) == (("train.epochs=2", "bench.depth=2"), True)
    assert start == ask.Start("bench", only=True, restart=True, accept=("port_in_use",))
    assert opened.profile.name == "local.toml"


def test_a_bench_asks_for_its_depths_loads_and_ways_and_says_first_what_they_cost(call):
    result = call(
        *("bench", "--depths", "1,5,3", "--concurrency", "8,1", "--against", "none,ngram,/models/published"),
        *("--max-new-tokens", "32", "--smoke"),
        answers=started("r"),
    )
    opened = result.control.asked[0]
    assert opened.smoke and opened.settings == (
        "bench.depth=5",
        "bench.depths=[1, 3]",
        "bench.concurrencies=[1, 8]",
        'bench.against=["ngram", "/models/published"]',
        "bench.max_new_tokens=32",
    )
    assert ask.Start("bench") in result.control.asked
    assert (
        "bench: 6 engine starts; none, depth 1, depth 3, depth 5, ngram, /models/published at 1, 8 in fl"
        in result.stderr
    )


def test_a_bench_without_wishes_is_that_of_the_profile(call):
    result = call("bench", answers=started("r"))
    assert result.control.asked[0].settings == () and "bench: 2 engine starts" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--depths", "1,x"),
        ("--depths", "0"),
        ("--concurrency", "1,,2"),
        ("--drafter", "/d"),
        ("--count", "3"),
        ("--endpoint", "http://127.0.0.1:1", "--against", "ngram"),
    ],
)
def test_a_bench_refuses_what_means_nothing(call, words):
    result = call("bench", *words)
    assert result.exit_code == 2 and result.control.asked == []


def test_a_bench_is_told_as_a_table_or_as_markdown(call):
    from eagle3_tui.mockserving import _bench

    summary = _bench(3, (0.62, 0.41, 0.28), (0.34, 0.12, 0.06), 1.37, 64)
    answers = {ask.Start: Started(("r",), ()), ask.Await: Outcome("bench", "bench", RunState.DONE, True, summary)}
    table = call("bench", answers=answers)
    assert "mine, depth 3   x1.37 (1.30 to 1.44)" in table.stdout and "1 in flight: depth 3; x1.37" in table.stdout
    report = call("bench", "--markdown", answers=answers).stdout
    assert "## Recipe" in report and "| mine, depth 3 | x1.37 (1.30 to 1.44) |" in report
    assert json.loads(call("bench", "--json", answers=answers).stdout)["result"]["cells"] == summary["cells"]


def test_detach_returns_without_waiting(call):
    result = call("run", "--through", "bench", "--detach", "--json", answers=started("r"))
    assert result.exit_code == 0
    assert json.loads(result.stdout)["detached"] is True
    assert not any(isinstance(command, ask.Await) for command in result.control.asked)


def test_a_stage_that_ends_badly_gives_exit_code_6_with_its_findings(call):
    ended = Outcome(
        "bench", "train", RunState.FAILED, False, remark="exit 1", findings=(error("loss_nan", "NaN at step 3."),)
    )
    result = call("run", "--through", "bench", "--json", answers={ask.Start: Started(("r",), ()), ask.Await: ended})
    assert result.exit_code == 6
    answer = json.loads(result.stdout)
    assert answer["result"] is None
    assert answer["ended"] == {"stage": "train", "state": "failed", "remark": "exit 1"}
    assert [finding["code"] for finding in answer["findings"]] == ["loss_nan"]
    assert "error loss_nan: NaN at step 3." in result.stderr


@pytest.mark.parametrize(
    ("finding", "code"),
    [(UNREACHABLE, 3), (UNKNOWN_KEY, 4), (CHANGED_KEY, 4), (error("disk_space_insufficient", "Full."), 1)],
    ids=lambda value: getattr(value, "code", None),
)
@pytest.mark.parametrize("command", [("status",), ("run", "--through", "bench"), ("attach",), ("logs", "train")])
def test_every_command_refuses_with_the_code_of_the_finding(call, command, finding, code):
    result = call("--no-input", *command, answers={ask.Open: FindingError(finding)})
    assert result.exit_code == code
    assert finding.code in result.stderr and result.stdout == ""
    assert result.control.closed


def test_a_refused_act_gives_its_findings_as_json(call):
    refused = FindingError(error("port_in_use", "Taken.", path="8000", expected="free", actual="nginx", fix="Stop it."))
    result = call("run", "--through", "bench", "--json", answers={ask.Start: refused})
    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"][0]["code"] == "port_in_use"
    assert "error port_in_use 8000: Taken. (expected free, found nginx)\n  next: Stop it." in result.stderr


def test_other_active_work_of_the_campaign_is_a_conflict(call):
    result = call("run", "--through", "bench", answers=started("other", already_running=True, same_chain=False))
    assert result.exit_code == 5
    assert not any(isinstance(command, ask.Await) for command in result.control.asked)


def test_the_same_chain_started_twice_is_watched_instead(call):
    result = call("run", "--through", "bench", "--json", answers=started("r", already_running=True, same_chain=True))
    assert result.exit_code == 0 and json.loads(result.stdout)["result"] == BENCH


def test_an_interrupted_watch_leaves_the_run_alone(call):
    answers = {**started("r"), ask.Await: KeyboardInterrupt()}
    result = call("run", "--through", "bench", answers=answers)
    assert result.exit_code == 130
    assert "goes on" in result.stderr
    assert not any(isinstance(command, ask.Stop) for command in result.control.asked)


def test_dry_run_prints_the_script_and_starts_nothing(call):
    full = error("disk_space_insufficient", "Too small.").to_json()
    answer = {"script": "#!/bin/sh\necho train\n", "stages": [], "fresh": [], "findings": [full]}
    result = call("run", "--through", "train", "--dry-run", answers={ask.DryRun: answer})
    assert result.stdout.startswith("#!/bin/sh") and "disk_space_insufficient" in result.stderr
    assert not any(isinstance(command, ask.Start) for command in result.control.asked)


def test_stop_all_asks_what_is_at_work_and_waits_until_it_has_left(call):
    running = StageView("train", "Training", RunState.RUNNING)
    views = [running, replace(running, state=RunState.STOPPING), replace(running, state=RunState.STOPPED)]

    class Control(FakeControl):
        def snapshot(self):
            queued = StageView("export", "", RunState.QUEUED if len(views) > 1 else RunState.BLOCKED)
            return replace(self.view, stages=(views.pop(0) if len(views) > 1 else views[0], queued))

    control = Control({ask.Stop: RunState.STOPPING})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "open_control", lambda: control)
        result = CliRunner().invoke(app, ["stop", "--all", "--json"])
    assert json.loads(result.stdout) == {"stages": {"train": "stopped"}}
    assert [command for command in control.asked if isinstance(command, ask.Stop)] == [ask.Stop("train")]


@pytest.mark.parametrize("argv", [("stop",), ("stop", "train", "--all"), ("run",), ("run", "--through", "trian")])
def test_wrong_usage_is_exit_code_2(call, argv):
    assert call(*argv).exit_code == 2


def test_a_mistyped_stage_names_the_nearest(call):
    assert "'train'" in call("logs", "trian").stderr


def test_resume_continues_the_chain(call):
    answers = {ask.Resume: Started(("r",), (), stages=("train", "bench")), ask.Await: DONE}
    result = call("resume", "train", "--through", "bench", "--json", answers=answers)
    assert result.exit_code == 0
    assert ask.Resume("train", "bench") in result.control.asked


def test_resume_alone_waits_for_the_chain_that_stood_behind_the_stage(call):
    answers = {ask.Resume: Started(("r",), (), stages=("train", "bench")), ask.Await: DONE}
    result = call("resume", "train", "--json", answers=answers)
    assert ask.Await("bench") in result.control.asked
    assert json.loads(result.stdout)["result"] == BENCH


def test_attach_without_work_says_so(call):
    result = call("attach", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["active"] is False


def test_attach_follows_to_the_last_stage_of_the_active_chain(call):
    view = Snapshot(
        stages=(
            StageView("generate", "", RunState.RUNNING),
            StageView("train", "", RunState.QUEUED),
            StageView("bench", "", RunState.BLOCKED),
        )
    )
    result = call("attach", answers={ask.Await: DONE}, view=view)
    assert ask.Await("train") in result.control.asked


def test_attach_tells_what_it_saw_end_apart_from_what_was_there(call):
    view = Snapshot(stages=(StageView("bench", "", RunState.RUNNING),))
    assert json.loads(call("attach", "--json", answers={ask.Await: DONE}, view=view).stdout)["fresh"] is False
    fresh = Snapshot(stages=(StageView("bench", "", RunState.DONE, fresh=True),))
    assert json.loads(call("attach", "bench", "--json", answers={ask.Await: DONE}, view=fresh).stdout)["fresh"] is True


def test_metrics_as_lines_are_one_object_a_point(call):
    series = {"train/loss": [[1, 9.0], [2, None]]}
    result = call("metrics", "train", "--jsonl", answers={ask.Metrics: {"stage": "train", "series": series}})
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"name": "train/loss", "step": 1, "value": 9.0},
        {"name": "train/loss", "step": 2, "value": None},
    ]


def test_doctor_fails_when_a_check_does(call):
    checks = [{"area": "host", "name": "psutil", "level": "fail", "message": "absent", "fix": "Install it."}]
    result = call("doctor", "--json", answers={ask.Doctor: {"checks": checks}})
    assert result.exit_code == 1
    assert checks[0] in json.loads(result.stdout)["checks"]


def test_doctor_tells_the_link_when_the_host_is_not_reached(call):
    result = call("doctor", "--json", answers={ask.Open: FindingError(UNREACHABLE)})
    assert result.exit_code == 3
    failed = [check for check in json.loads(result.stdout)["checks"] if check["level"] == "fail"]
    assert [check["name"] for check in failed] == ["host_unreachable"]


def test_status_shows_remote_text_without_its_escapes(call):
    answer = {
        "campaign": "local",
        "workspace": "/w",
        "host": {"name": "box", "link": "live"},
        "stages": [{"name": "train", "state": "failed", "remark": "bad \x1b[2J[/] end\n", "attempt": 2}],
    }
    result = call("status", answers={ask.Status: answer})
    assert "\x1b" not in result.stdout and "[/] end" in result.stdout
    assert len(result.stdout.splitlines()) == 2


def log_of(data):
    """A facade's answers to `Logs` over these bytes."""

    class Control(FakeControl):
        def submit(self, command):
            if not isinstance(command, ask.Logs):
                return super().submit(command)
            length = min(command.length, 7)
            offset = max(0, len(data) - length) if command.offset is None else command.offset
            future = Future()
            future.set_result({"offset": offset, "size": len(data), "data": data[offset : offset + length]})
            return future

    return Control({})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), b"one\nt\xffo\r\x1b[1m\nthree\nfour"),
        (("--tail", "1"), b"four"),
        (("--tail", "3"), b"t\xffo\r\x1b[1m\nthree\nfour"),
        (("--tail", "99"), b"one\nt\xffo\r\x1b[1m\nthree\nfour"),
    ],
)
def test_logs_are_copied_byte_for_byte(monkeypatch, options, expected):
    monkeypatch.setattr(places, "open_control", lambda: log_of(b"one\nt\xffo\r\x1b[1m\nthree\nfour"))
    result = CliRunner().invoke(app, ["logs", "train", *options])
    assert result.stdout_bytes == expected


def test_the_tail_of_a_log_that_ends_with_a_newline_is_whole_lines(monkeypatch):
    monkeypatch.setattr(places, "open_control", lambda: log_of(b"one\ntwo\nthree\n"))
    assert CliRunner().invoke(app, ["logs", "train", "--tail", "2"]).stdout_bytes == b"two\nthree\n"


def test_a_followed_log_goes_on_while_its_end_is_not_known(monkeypatch):
    control, later = log_of(b"one\n"), log_of(b"one\ntwo\n")
    states = [RunState.RUNNING, RunState.UNKNOWN, RunState.DONE]

    def look():
        state = states.pop(0)
        if state is RunState.DONE:
            monkeypatch.setattr(control, "submit", later.submit)
        return Snapshot(stages=(StageView("train", "Training", state),))

    monkeypatch.setattr(control, "snapshot", look)
    monkeypatch.setattr(places, "open_control", lambda: control)
    assert CliRunner().invoke(app, ["logs", "train", "--follow"]).stdout_bytes == b"one\ntwo\n"


@pytest.fixture
def box(tmp_path):
    profile = tmp_path / "box.toml"
    profile.write_text('[host]\naddress = "box"\n[target]\nmodel = "m"\n')
    return str(profile)


def test_an_unknown_key_is_saved_when_its_fingerprint_was_given(call, box):
    answers = {ask.Open: [FindingError(UNKNOWN_KEY), None]}
    result = call("--profile", box, "hosts", "trust", "box", "--fingerprint", FINGERPRINT, "--json", answers=answers)
    assert json.loads(result.stdout) == {"name": "box", "key_saved": True}
    assert ask.TrustHostKey(save=True) in result.control.asked


def test_hosts_are_listed_with_their_workspaces_and_then_what_ssh_knows(call):
    by_command = {"name": "docker exec -i box", "transport": ["docker", "exec", "-i", "box"], "workspaces": ["/data"]}
    answers = {ask.Hosts: {"hosts": [by_command], "candidates": ["spare"]}}
    result = call("hosts", "list", answers=answers)
    first, second = result.stdout.splitlines()
    assert first.split("  ")[0] == "docker exec -i box" and first.endswith("/data")
    assert second.startswith("spare") and "~/.ssh/config" in second


def test_held_locks_are_listed_with_thing_run_user_time_and_processes(call):
    lock = {"kind": "gpu", "thing": "GPU-\x1b[31m1", "run": "r", "user": "ana", "since": 5.0, "seconds": 3725.0,
            "orphaned": True, "processes": [{"pid": 7, "command": "c"}]}  # fmt: skip
    unseen = {**lock, "thing": "", "run": None, "user": None, "seconds": None, "orphaned": False, "processes": []}
    told = {"locks": [lock, unseen], "problem": warning("locks_partly_seen", "Not all.").to_json()}
    result = call("hosts", "locks", "--json", answers={ask.Locks: told})
    assert json.loads(result.stdout) == told and "locks_partly_seen" in result.stderr
    first, second = call("hosts", "locks", answers={ask.Locks: told}).stdout.splitlines()
    assert first.split() == ["gpu", *first.split()[1:]] and "r  ana  01:02:05  alive: 7  no supervisor" in first
    assert "\x1b" not in first and "not told" in second and "no process seen" in second
    nothing = call("hosts", "locks", answers={ask.Locks: {"locks": [], "problem": None}})
    assert (nothing.exit_code, nothing.stdout) == (0, "No lock is held.\n")


def test_another_fingerprint_than_the_given_one_is_refused(call, box):
    answers = {ask.Open: [FindingError(UNKNOWN_KEY)]}
    result = call("--profile", box, "hosts", "add", "box", "--fingerprint", "SHA256:other", answers=answers)
    assert result.exit_code == 4
    assert ask.TrustHostKey(save=True) not in result.control.asked


def test_a_changed_key_is_never_trusted(call, box):
    answers = {ask.Open: [FindingError(CHANGED_KEY)]}
    result = call("--profile", box, "hosts", "trust", "box", "--fingerprint", "SHA256:new", answers=answers)
    assert result.exit_code == 4
    assert ask.TrustHostKey(save=True) not in result.control.asked


def test_a_host_that_the_profile_does_not_name_is_refused(call, box):
    result = call("--profile", box, "hosts", "rebind", "bxo", "--confirm", "bxo")
    assert result.exit_code == 1 and "host_not_in_profile" in result.stderr
    assert result.control.asked == []


REBIND = {"host": "box", "old_fingerprint": "SHA256:old", "new_fingerprint": "SHA256:new", "adopted": []}


def test_rebind_shows_both_fingerprints_and_replaces_nothing_without_the_name(call, box):
    answers = {ask.Open: FindingError(CHANGED_KEY), ask.Rebind: REBIND}
    result = call("--profile", box, "--no-input", "hosts", "rebind", "box", answers=answers)
    assert result.exit_code == 1
    assert "SHA256:old" in result.stderr and "SHA256:new" in result.stderr
    assert ask.Rebind("box", confirm=True) not in result.control.asked


def test_rebind_replaces_the_key_once_the_name_is_repeated(call, box):
    answers = {ask.Open: FindingError(CHANGED_KEY), ask.Rebind: REBIND}
    result = call("--profile", box, "hosts", "rebind", "box", "--confirm", "box", "--json", answers=answers)
    assert result.exit_code == 0
    assert result.control.asked[-1] == ask.Rebind("box", confirm=True)
    assert json.loads(result.stdout) == REBIND


def test_rebind_of_a_host_that_is_what_it_was_asks_for_nothing(call, box):
    answers = {ask.Rebind: {"host": "box", "new_fingerprint": None, "attempts": [], "lost": []}}
    result = call("--profile", box, "hosts", "rebind", "box", answers=answers)
    assert result.exit_code == 0 and "nothing to replace" in result.stderr
    assert ask.Rebind("box", confirm=True) not in result.control.asked


def test_a_host_that_is_long_in_coming_is_told(call, monkeypatch):
    monkeypatch.setattr(campaign, "PATIENCE_SECONDS", 0.0)

    class Late(Future):
        def result(self, timeout=None):
            self.set_result(None)
            return super().result(timeout)

    monkeypatch.setattr(FakeControl, "submit", lambda self, command: Late())
    assert "Still reaching embedded" in call("hosts", "add", "embedded").stderr


def test_demo_without_a_terminal_runs_the_campaign_and_prints_its_result(call):
    result = call("demo", answers=started("r"))
    assert result.exit_code == 0
    assert json.loads(result.stdout)["result"] == BENCH
    assert ask.Start("bench") in result.control.asked


def test_advice_is_for_the_campaign_that_was_asked_about(call, box):
    result = call(
        *("--profile", box, "run", "--set", "train.epochs=2", "--smoke", "--through", "bench", "--detach"),
        answers=started("r"),
    )
    assert f"eagle3-tui --profile {box} --set train.epochs=2 attach --smoke" in result.stderr
    assert "eagle3-tui attach" in call("run", "--through", "bench", "--detach", answers=started("r")).stderr


def test_attach_to_a_stage_that_never_ran_is_refused(call):
    view = Snapshot(stages=(StageView("train", "", RunState.BLOCKED),))
    result = call("attach", "train", view=view)
    assert result.exit_code == 1 and "stage_not_running" in result.stderr
    assert not any(isinstance(command, ask.Await) for command in result.control.asked)


def test_stop_all_without_work_says_so(call):
    result = call("stop", "--all")
    assert (result.exit_code, result.stdout) == (0, "") and "Nothing is running" in result.stderr


def test_a_host_is_found_among_the_profiles_by_its_name(call, box, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "user_profiles", lambda: tmp_path)
    answers = {ask.Open: [FindingError(UNKNOWN_KEY), None]}
    result = call("hosts", "trust", "box", "--fingerprint", FINGERPRINT, answers=answers)
    assert result.exit_code == 0
    assert str(result.control.asked[0].profile) == box


def test_output_that_cannot_be_written_is_a_finding(call):
    result = call("status", answers={ask.Status: OSError(28, "No space left on device")})
    assert result.exit_code == 1
    assert "laptop_file_unusable" in result.stderr and "No space left" in result.stderr


def stored(name, **fields):
    return {"path": f"/w/local/{name}", "stage": name.split("/")[0], "name": name.split("/")[1], "planned": False,
            "aside": ".old-" in name, "whole": True, "bytes": 2_000_000, "needed_by": [], **fields}  # fmt: skip


STORED = {
    "artifacts": [stored("train/a1", planned=True, needed_by=["evaluate", "export"]), stored("train/a1.old-2026-1")],
    "left_off": 0,
}


def test_artifacts_are_listed_with_their_sizes(call):
    lines = call("artifacts", answers={ask.Artifacts: STORED}).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["train/a1", "train/a1.old-2026-1", "total"]
    assert lines[0].endswith("2.0 MB  whole, as planned") and lines[1].endswith("set aside by a restart")
    assert lines[2].endswith("4.0 MB")
    assert json.loads(call("artifacts", "--json", answers={ask.Artifacts: STORED}).stdout) == STORED


def test_a_deletion_without_yes_only_tells_what_would_be_missed(call):
    result = call("artifacts", "delete", "train/a1", answers={ask.Artifacts: STORED})
    assert result.exit_code == 1 and not any(isinstance(one, ask.DeleteArtifact) for one in result.control.asked)
    assert "train is no longer fresh" in result.stderr and "evaluate, export lose an input" in result.stderr


@pytest.mark.parametrize(
    ("words", "paths"),
    [(("train/a1", "/w/local/train/a1"), ["train/a1"]), (("--old",), ["train/a1.old-2026-1"])],
)
def test_artifacts_are_deleted_by_name_or_all_that_restarts_set_aside(call, words, paths):
    answers = {ask.Artifacts: STORED, ask.DeleteArtifact: {"path": "p", "deleted": True, "bytes": 2_000_000}}
    result = call("artifacts", "delete", *words, "--yes", "--json", answers=answers)
    assert result.exit_code == 0 and json.loads(result.stdout)["bytes"] == 2_000_000
    asked = [one.path for one in result.control.asked if isinstance(one, ask.DeleteArtifact)]
    assert asked == [f"/w/local/{path}" for path in paths]


def test_what_a_run_works_with_is_not_deleted_and_the_rest_is(call):
    busy = FindingError(error("artifact_in_use", "It is read."))
    gone = {"path": "p", "deleted": True, "bytes": 5}
    answers = {ask.Artifacts: STORED, ask.DeleteArtifact: [busy, gone]}
    result = call("artifacts", "delete", "train/a1", "train/a1.old-2026-1", "--yes", "--json", answers=answers)
    told = json.loads(result.stdout)
    assert result.exit_code == 5 and told["deleted"] == [gone] and told["findings"][0]["code"] == "artifact_in_use"


def test_a_deletion_of_nothing_or_of_what_is_not_there_is_refused(call):
    assert call("artifacts", "delete").exit_code == 2
    assert call("artifacts", "--profile", "p.toml", "delete", "train/a1", "--yes").exit_code == 2
    absent = call("artifacts", "delete", "train/zz", "--yes", answers={ask.Artifacts: STORED})
    assert absent.exit_code == 1 and "artifact_absent" in absent.stderr
