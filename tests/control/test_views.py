"""Where stages stand, from what a host said: every state and the evidence for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.fold import RunFold
from eagle3_backend.control.snapshot import Snapshot
from eagle3_backend.control.views import Survey, older_outputs, spent, stage_views
from eagle3_backend.findings import error
from eagle3_backend.pipeline.plan import plan_campaign
from eagle3_backend.pipeline.stages import STAGES, needed
from eagle3_backend.runs.lines import parse
from eagle3_backend.states import RunState

PLAN = plan_campaign("demo", "/w", {name: stage.parameters() for name, stage in STAGES.items()}, {})


def run(stage, state, attempt=1, **values):
    planned = PLAN.stages[stage]
    return {
        "run": planned.run,
        "attempt": attempt,
        "stage": stage,
        "campaign": "demo",
        "fingerprint": planned.fingerprint,
        "state": state,
        "remark": "",
        "started": 100.0,
        "ended": None,
        "elapsed": None,
        "heartbeat_age": None,
        "then": [],
        "findings": [],
        **values,
    }


def survey(*runs, fresh=(), at=50.0, older=None):
    artifacts = {PLAN.stages[name].output: {"summary": {"made": name}} for name in fresh}
    return Survey(tuple(runs), artifacts, older or {}, at)


def view(found, stage, *, live=True, now=50.0, folds=None):
    return next(view for view in stage_views(PLAN, found, folds or {}, live=live, now=now) if view.name == stage)


def test_nothing_is_claimed_before_the_host_has_said_a_word():
    assert {found.state for found in stage_views(PLAN, Survey(), {}, live=False, now=1.0)} == {RunState.UNKNOWN}


def test_a_stage_without_a_run_is_ready_or_names_what_it_waits_for():
    found = survey(fresh=("setup",))
    assert view(found, "target").state is RunState.READY
    vocab = view(found, "vocab")
    assert vocab.state is RunState.BLOCKED and vocab.blocked_by == ("target", "generate")


def test_a_whole_artifact_is_done_whatever_became_of_its_attempt():
    found = view(survey(run("target", "crashed"), fresh=("setup", "target")), "target")
    assert found.state is RunState.DONE and found.fresh and found.summary == {"made": "target"}


def test_a_run_that_ended_well_without_its_artifact_is_to_be_run_again():
    found = view(survey(run("target", "done"), fresh=("setup",)), "target")
    assert (found.state, found.remark) == (RunState.READY, "its artifact is gone")


@pytest.mark.parametrize(
    "state", ["failed", "crashed", "lost", "stopped", "unknown", "running", "stopping", "starting"]
)
def test_the_hosts_word_stands(state):
    found = view(survey(run("train", state, remark="evidence"), fresh=needed("vocab")), "train")
    assert found.state is RunState(state) and found.remark == "evidence"


def test_a_state_of_a_newer_agent_is_unknown():
    assert view(survey(run("train", "hibernating")), "train").state is RunState.UNKNOWN


def test_the_newest_attempt_counts():
    found = view(survey(run("train", "failed", 1), run("train", "running", 2)), "train")
    assert (found.state, found.attempt) == (RunState.RUNNING, 2)


def test_a_service_that_ended_is_stopped():
    assert view(survey(run("serve", "done")), "serve").state is RunState.STOPPED


def test_stages_behind_an_active_one_are_queued_even_where_they_failed_before():
    found = survey(run("target", "running", then=["generate", "vocab"]), run("vocab", "failed"))
    assert view(found, "vocab").state is RunState.QUEUED and view(found, "vocab").remark == "behind target"
    assert view(found, "train").state is RunState.BLOCKED


def test_a_chain_of_other_parameters_queues_nothing_here():
    other = {**run("target", "running", then=["vocab"]), "run": "demo-target-other"}
    assert view(survey(other), "vocab").state is RunState.BLOCKED


def test_a_lost_link_makes_active_states_unknown_and_leaves_the_others():
    found = survey(run("train", "running", elapsed=10.0), fresh=needed("vocab"), at=7.0)
    train = view(found, "train", live=False, now=48.0)
    assert (train.state, train.last_state, train.as_of, train.elapsed) == (
        RunState.UNKNOWN,
        RunState.RUNNING,
        7.0,
        10.0,
    )
    vocab = view(found, "vocab", live=False, now=48.0)
    assert (vocab.state, vocab.as_of) == (RunState.DONE, 7.0)


def test_time_goes_on_from_what_the_host_said():
    found = survey(run("train", "running", elapsed=10.0), at=50.0)
    assert view(found, "train", now=53.0).elapsed == 13.0
    ended = survey(run("train", "failed", started=100.0, ended=160.0), at=50.0)
    assert view(ended, "train", now=99.0).elapsed == 60.0


def test_progress_and_findings_come_from_journal_and_host_alike():
    fold = RunFold([("train/loss", (0.0, 3.0))])
    fold.add(
        parse(
            b'{"w":"stage","seq":0,"t":1,"mono":1,"kind":"progress","done":3,"total":9,"unit":"steps","rate":2}\n'
            b'{"w":"stage","seq":1,"t":1,"mono":1,"kind":"metric","step":1,"values":{"train/loss":2.0}}\n'
            b'{"w":"stage","seq":2,"t":1,"mono":1,"kind":"finding","code":"loss_nan","severity":"error","message":"m"}\n',
            0,
        )
    )
    orphaned = error("remote_process_orphaned", "n").to_json()
    planned = PLAN.stages["train"]
    found = view(survey(run("train", "running", findings=[orphaned])), "train", folds={(planned.run, 1): fold})
    assert (found.done, found.total, found.eta) == (3.0, 9.0, 3.0)
    assert found.metrics == {"train/loss": 2.0}
    assert [finding.code for finding in found.findings] == ["loss_nan", "remote_process_orphaned"]


def test_a_done_stage_under_another_fingerprint_is_out_of_date_and_says_by_what():
    old = {**run("vocab", "done", ended=5.0), "fingerprint": "old", "run": "demo-vocab-old"}
    assert older_outputs(PLAN, (old,)) == {"vocab": "/w/demo/vocab/old"}
    inputs = {"target": PLAN.stages["target"].fingerprint, "generate": "changed"}
    found = view(survey(old, older={"vocab": {"inputs": inputs, "summary": {"made": "before"}}}), "vocab")
    assert (found.state, found.fresh, found.outdated_by) == (RunState.DONE, False, ("generate",))
    assert found.summary == {"made": "before"}


def test_the_newest_of_several_old_artifacts_is_the_one_compared_with():
    olds = tuple(
        {**run("vocab", "done", ended=ended), "fingerprint": name, "run": f"demo-vocab-{name}"}
        for ended, name in ((5.0, "first"), (9.0, "second"), (7.0, "third"))
    )
    assert older_outputs(PLAN, olds) == {"vocab": "/w/demo/vocab/second"}


def test_a_view_names_what_it_stands_on_in_this_campaign():
    parameters = {name: stage.parameters() for name, stage in STAGES.items()}
    parameters["export"] = replace(parameters["export"], adopt="/drafters/one")
    plan = plan_campaign("demo", "/w", parameters, {})
    artifacts = {plan.stages[name].output: {"summary": {}} for name in ("setup", "target")}
    views = stage_views(plan, Survey((), artifacts, {}, 50.0), {}, live=True, now=50.0)
    export = next(view for view in views if view.name == "export")
    assert export.needs == ("setup", "target", "export") and "train" not in export.blocked_by
    assert Snapshot(stages=views).needed("serve") == ("setup", "target", "export", "serve")


def test_time_spent_is_that_of_all_attempts_and_what_ran_together_counts_once():
    runs = (
        run("train", "stopped", ended=160.0),
        run("train", "done", attempt=2, started=200.0, ended=300.0),
        run("serve", "running", started=250.0, elapsed=150.0),
        run("bench", "done", started=260.0, ended=280.0),
        run("export", "crashed"),
    )
    assert spent(Survey(runs=runs)) == 60.0 + 100.0 + 100.0
    assert spent(Survey()) == 0.0
