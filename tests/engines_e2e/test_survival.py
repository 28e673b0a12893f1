"""A smoke campaign whose laptop is killed, shut and replaced while the host works."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines

GATEWAY_KILLS = 3

EPOCHS = 18
"""Enough that a stop after the first checkpoint finds the training on ten conversations at work."""


@pytest.fixture(scope="module")
def smoke(make_laptop, campaign):
    """A laptop on the smoke campaign. It shares environments and target with the whole one, which is there by now."""
    # A seed that no other call uses: what an earlier session left in this workspace is then not fresh.
    return make_laptop(f"prompts.seed={random.randrange(10**6)}")


def plan_of(laptop, *flags):
    """What `status` says of each stage."""
    return {stage["name"]: stage for stage in laptop.call("status", "--json", *flags).json["stages"]}


def test_the_chain_survives_its_laptop_and_every_gateway(smoke, make_laptop, tools):
    plan = plan_of(smoke, "--smoke")
    generate = smoke.workspace / ".eagle3" / "runs" / plan["generate"]["run"] / "1"

    # kill -9 of the command while the second stage of the chain is at work.
    process = smoke.begin("run", "--through", "export", "--smoke", "--json")
    tools.wait_until((generate / "supervisor.json").exists, 120, "the start of generate")
    process.kill()
    process.wait()

    # Another laptop attaches; its gateways are killed under it.
    other = make_laptop(*smoke.settings)
    watching = other.begin("attach", "export", "--smoke", "--json")
    tools.wait_until(lambda: other.stored_journal(plan["generate"]["run"], 1), 60, "the following of the journal")
    for _ in range(GATEWAY_KILLS):
        (gateway, *_) = tools.wait_until(lambda: tools.gateways_of(watching), 60, "a gateway")
        gateway.kill()
        tools.wait_until(lambda dead=gateway: not dead.is_running(), 30, "the end of the gateway")
    stdout, stderr = watching.communicate(timeout=900)
    assert watching.returncode == 0, stderr[-4000:]
    assert json.loads(stdout)["reached"] is True

    # One attempt each, and both copies equal.
    for stage in ("generate", "extract", "vocab", "train", "export"):
        run = plan[stage]["run"]
        (attempt,) = smoke.runs()[run]
        host = (attempt / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        assert other.stored_journal(run, 1) == host
        assert json.loads((attempt / "exit.json").read_text())["state"] == "done"


def test_the_chain_goes_on_with_the_laptop_shut(smoke, tools):
    """Two stages without an engine: nothing of the laptop runs between the start and the end of the second."""
    again = f"train.seed={random.randrange(10**6)}"
    smoke.settings += (again,)
    started = smoke.call("run", "--through", "export", "--smoke", "--detach", "--json")
    assert started.code == 0 and started.json["detached"] is True
    runs = started.json["runs"]
    assert len(runs) >= 2
    exits = [smoke.workspace / ".eagle3" / "runs" / run / "1" / "exit.json" for run in runs]
    tools.wait_until(lambda: all(path.exists() for path in exits), 600, "the end of the chain")
    assert [json.loads(path.read_text())["state"] for path in exits] == ["done"] * len(runs)
    assert plan_of(smoke, "--smoke")["export"]["fresh"] is True


def test_training_that_was_stopped_and_resumed_ends_with_the_weights_of_an_unbroken_run(smoke, tools):
    # The smoke campaign's own sizes, so that all before training is fresh; its single epoch would be over too soon.
    sizes = ("prompts.limit=10", "prompts.holdout=4", "generate.max_new_tokens=32")
    smoke.settings += (*sizes, f"train.epochs={EPOCHS}", "train.checkpoint_seconds=2")
    assert smoke.call("run", "--through", "train", "--json", timeout=600).code == 0
    train = plan_of(smoke)["train"]
    unbroken = weights_of(train["output"])

    started = smoke.call("run", "--through", "train", "--restart", "--detach", "--json")
    assert started.json["runs"] == [train["run"]]
    journal = smoke.runs()[train["run"]][1] / "journal.jsonl"
    tools.wait_until(lambda: journal.exists() and '"kind":"checkpoint"' in journal.read_text(), 120, "a checkpoint")
    assert smoke.call("stop", "train", "--json", timeout=200).json["stages"] == {"train": "stopped"}
    assert smoke.call("attach", "train", "--json").code == 6

    resumed = smoke.call("resume", "train", "--json", timeout=600)
    assert resumed.code == 0, resumed.stderr[-4000:]
    assert len(smoke.runs()[train["run"]]) == 3
    assert weights_of(train["output"]) == unbroken


def weights_of(output):
    """Hash of the trained drafter in a checkpoint artifact's manifest."""
    manifest = json.loads((Path(output) / "manifest.json").read_text(encoding="utf-8"))
    (digest,) = (entry["sha256"] for entry in manifest["files"] if entry["path"] == "drafter.safetensors")
    return digest
