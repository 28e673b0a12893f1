"""A chain of stages goes on by itself on the host, and stops where one is not done."""

from __future__ import annotations

import os
from pathlib import Path


def _chain(*specs):
    head, *rest = specs
    return {**head, "then": rest}


def test_the_chain_goes_on_after_the_gateway_is_gone(connect, stages):
    first = connect()
    specs = [stages.spec(name, "time.sleep(0.3); finish()", stage="train") for name in ("a", "b", "c")]
    first.start(_chain(*specs), secrets={"TOKEN": "t"})
    first.kill()
    second = connect()
    assert second.wait_for(specs[2]["run"], "done")["claim_by"] == "chain"
    entries = second.request("runs")["runs"]
    assert sorted((entry["run"], entry["state"]) for entry in entries) == sorted(
        (spec["run"], "done") for spec in specs
    )


def test_waiting_stages_are_listed_behind_the_one_at_work(gateway, stages):
    specs = [stages.spec(name, "time.sleep(600)", stage=name) for name in ("train", "evaluate", "export")]
    gateway.start(_chain(*specs))
    assert gateway.run(specs[0]["run"])["then"] == ["evaluate", "export"]


def test_the_chain_stops_at_the_first_stage_that_fails(gateway, stages):
    specs = [
        stages.spec("a", "finish()", stage="train"),
        stages.spec("b", "sys.exit(1)", stage="train"),
        stages.spec("c", "finish()", stage="train"),
    ]
    gateway.start(_chain(*specs))
    assert gateway.wait_for(specs[1]["run"], "failed")["then"] == []
    assert not stages.directory(specs[2]).exists()


def test_a_stopped_stage_ends_its_chain(gateway, stages):
    specs = [stages.spec("a", "time.sleep(600)", stage="train"), stages.spec("b", "finish()", stage="train")]
    gateway.start(_chain(*specs))
    gateway.request("stop", run=specs[0]["run"], attempt=1)
    gateway.wait_for(specs[0]["run"], "stopped")
    assert not stages.directory(specs[1]).exists()


def test_a_stop_that_meets_the_start_of_the_next_stage_ends_the_chain(gateway, stages):
    specs = [stages.spec("a", "finish()", stage="train"), stages.spec("b", "time.sleep(600)", stage="train")]
    gate = Path(specs[1]["output"]) / "manifest.json"
    gate.parent.mkdir(parents=True)
    os.mkfifo(gate)  # whoever looks whether the next stage is fresh waits here, which holds the hand-over open
    gateway.start(_chain(*specs))
    with open(gate, "wb"):
        gate.unlink()
        gateway.request("stop", run=specs[0]["run"], attempt=1)
    gateway.wait_for(specs[0]["run"], "done")
    gateway.wait_for(specs[1]["run"], "stopped")


def test_fresh_stages_of_a_chain_are_skipped(gateway, stages):
    specs = [stages.spec(name, "finish()", stage="train") for name in ("a", "b", "c")]
    gateway.start(specs[1])
    gateway.wait_for(specs[1]["run"], "done")
    gateway.start(_chain(*specs))
    gateway.wait_for(specs[2]["run"], "done")
    assert [entry["attempt"] for entry in gateway.request("runs")["runs"] if entry["run"] == specs[1]["run"]] == [1]


def test_a_chain_of_which_the_head_is_fresh_starts_behind_it(gateway, stages):
    specs = [stages.spec(name, "finish()", stage="train") for name in ("a", "b")]
    gateway.start(specs[0])
    gateway.wait_for(specs[0]["run"], "done")
    answer = gateway.start(_chain(*specs), request="r")
    assert (answer["run"], answer["started"]) == (specs[1]["run"], True)
    gateway.wait_for(specs[1]["run"], "done")
    assert gateway.start(_chain(*specs), request="r")["run"] == specs[1]["run"]


def test_a_chain_that_cannot_go_on_says_so_in_the_outcome(gateway, stages):
    specs = [stages.spec("a", "finish()", stage="train"), stages.spec("b", "", stage="train", argv=["/nowhere/python"])]
    gateway.start(_chain(*specs))
    entry = gateway.wait_for(specs[0]["run"], "done")
    assert [finding["code"] for finding in entry["exit"]["findings"]] == ["environment_missing"]
    assert gateway.run(specs[1]["run"])["state"] == "failed"
