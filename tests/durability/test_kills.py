"""Everything between the operator and the work is killed, again and again: the work goes on and no line is lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time

import psutil
import pytest

pytestmark = pytest.mark.long

KILLS = 20
LONG = 'epochs = 50\nbatch_rows = 64\ndtype = "float32"\ncheckpoint_seconds = 1.0'
CHAIN = ("train", "export")


def gateways_at(workspace):
    """The gateways on the host that serve this workspace."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "eagle3_backend.agent.gateway" in words and str(workspace) in words:
                found.append(process)
    return found


def test_a_chain_outlives_panels_commands_gateways_and_servers_that_are_killed_at_random_moments(make_site, tools):
    site, chooser = make_site("chain", LONG), random.Random(7)
    laptop = site.laptop
    started = laptop.call("run", "--through", "export", "--detach", "--json")
    assert started.code == 0, started.stderr
    for number in range(KILLS):
        programs = [laptop.open_panel(), laptop.begin("attach", "export", "--json")]
        while programs:
            time.sleep(chooser.uniform(0.2, 1.3))
            for gateway in gateways_at(site.workspace):
                with contextlib.suppress(psutil.NoSuchProcess):
                    gateway.kill()
            if number % 5 == 0:
                site.server.kill()
                site.server.start()
            program = programs.pop(chooser.randrange(len(programs)))
            program.kill()
            program.wait()

    # Nothing of the laptop is left; the host goes through its chain alone.
    assert all(process.poll() is not None for process in laptop.begun)
    exits = [laptop.workspace / ".eagle3" / "runs" / run / "1" / "exit.json" for run in started.json["runs"]]
    tools.wait_until(lambda: all(path.exists() for path in exits), 400, "the end of the chain")
    assert [json.loads(path.read_text())["state"] for path in exits] == ["done"] * len(CHAIN)

    watched = laptop.call("attach", "export", "--json")
    assert watched.code == 0, watched.stderr
    for stage in CHAIN:
        (attempt,) = site.attempts(stage)
        host = (attempt / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        assert laptop.stored_journal(attempt.parent.name, 1) == host


def test_training_outlives_its_supervisor_is_stopped_by_name_and_resumed(make_site, tools, read_journal):
    site = make_site("orphan", LONG)
    laptop = site.laptop
    assert laptop.call("run", "--through", "train", "--detach", "--json").code == 0
    (first,) = site.attempts("train")
    tools.wait_until(lambda: read_journal(first, "checkpoint"), 120, "a checkpoint")
    os.kill(json.loads((first / "supervisor.json").read_text())["supervisor"]["pid"], signal.SIGKILL)
    done = read_journal(first, "progress")[-1]["done"]
    train = laptop.stages()["train"]
    assert train["state"] == "unknown"
    assert "remote_process_orphaned" in [finding["code"] for finding in train["findings"]]
    tools.wait_until(lambda: read_journal(first, "progress")[-1]["done"] > done + 5, 60, "more steps")
    refused = laptop.call("run", "--through", "train", "--json")
    assert (refused.code, refused.json["findings"][0]["code"]) == (1, "remote_process_orphaned")

    stopped = laptop.call("stop", "train", "--json")
    assert stopped.code == 0, stopped.stderr
    tools.wait_until(lambda: laptop.stages()["train"]["state"] == "crashed", 90, "the end of the orphan")
    reached = read_journal(first, "progress")[-1]["done"]
    assert read_journal(first, "checkpoint")[-1]["step"] == reached  # asked to leave, it saved
    resumed = laptop.call("resume", "train", "--detach", "--json")
    assert resumed.code == 0, resumed.stderr
    _, second = site.attempts("train")
    began = tools.wait_until(lambda: read_journal(second, "progress"), 60, "steps after the resume")
    assert began[0]["done"] == reached + 1
