"""A rented machine that is taken away and replaced: what lies in the workspace is all that is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

pytestmark = pytest.mark.long

TRAIN = 'epochs = 16\nbatch_rows = 64\ndtype = "float32"\ncheckpoint_seconds = 0.5'
CHECKPOINTS = 3


@pytest.fixture
def new_machine():
    """Whether another machine can be played here: it takes namespaces, and mounts in them."""
    command = ["unshare", "--mount", "--uts", "sh", "-c", "hostname other && mount -t tmpfs tmpfs /mnt"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare command here")
    if done.returncode != 0:
        pytest.skip(f"namespaces are not permitted here: {done.stderr.strip()}")


def lose(site):
    """The machine of an attempt ends at once: its sshd, the supervisor and everything below it, its own disk."""
    site.server.kill()
    record = json.loads((site.attempts("train")[0] / "supervisor.json").read_text())
    below = psutil.Process(record["supervisor"]["pid"])
    for process in [below, *below.children(recursive=True)]:
        os.kill(process.pid, signal.SIGKILL)
    shutil.rmtree(site.server.folder)


def codes(ended):
    return [finding["code"] for finding in ended.json["findings"]]


def test_training_ends_with_the_weights_of_an_unbroken_run_on_the_machine_that_replaced_its_own(
    new_machine, make_site, start_host, tools, read_journal
):
    unbroken = make_site("unbroken", TRAIN)
    assert unbroken.laptop.call("run", "--through", "train", "--json", timeout=400).code == 0

    site = make_site("replaced", TRAIN)
    laptop, login = site.laptop, site.laptop.home / "login"
    started = laptop.call("run", "--through", "train", "--detach", "--json")
    assert started.code == 0, started.stderr
    (first,) = site.attempts("train")
    tools.wait_until(lambda: len(read_journal(first, "checkpoint")) >= CHECKPOINTS, 120, "the checkpoints")
    shutil.copytree(site.server.folder, login)
    lose(site)
    reached = read_journal(first, "progress")[-1]["done"]
    checkpoint = read_journal(first, "checkpoint")[-1]["step"]

    site.server = start_host(machine="replacement", login=login)
    site.write_profile()
    before = laptop.call("status", "--json")
    assert (before.code, codes(before)) == (4, ["ssh_host_key_unknown"])
    unconfirmed = laptop.call("hosts", "rebind", "127.0.0.1", "--json")
    assert (unconfirmed.code, codes(unconfirmed)) == (1, ["confirmation_missing"])
    assert str(site.server.port) not in (laptop.home / ".ssh" / "known_hosts").read_text()

    rebound = laptop.call("hosts", "rebind", "127.0.0.1", "--confirm", "127.0.0.1", "--json")
    assert rebound.code == 0, rebound.stderr
    assert rebound.json["adopted"] == [f"{first.parent.name}/1"]
    lost = laptop.stages()["train"]
    assert (lost["state"], lost["remark"]) == ("lost", f"host {os.uname().nodename} was replaced")

    resumed = laptop.call("resume", "train", "--json", timeout=400)
    assert resumed.code == 0, resumed.stderr
    _, second = site.attempts("train")
    assert json.loads((second / "supervisor.json").read_text())["supervisor"]["host_name"] == "replacement"
    began = read_journal(second, "progress")[0]["done"]
    assert checkpoint < began <= reached + 1
    assert site.weights() == unbroken.weights()


def test_a_machine_with_a_new_key_under_the_old_port_is_met_again_only_by_its_name(make_sshd, laptop_at, tmp_path):
    server = make_sshd()
    home, profile = tmp_path / "home", tmp_path / "mine.toml"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    known_hosts = home / ".ssh" / "known_hosts"
    shutil.copy(server.known_hosts, known_hosts)
    host = server.host(workspace=str(tmp_path / "w"))
    profile.write_text(
        f'[host]\naddress = "127.0.0.1"\nport = {host.port}\nuser = "{host.user}"\nidentity = "{host.identity}"\n'
        f'workspace = "{host.workspace}"\n[environments.host]\npython = "{sys.executable}"\n'
        '[target]\nmodel = "/models/tiny"\n'
    )
    laptop = laptop_at(home, tmp_path / "w", profile, environment={"HOME": str(home), "SSH_AUTH_SOCK": ""})
    assert laptop.call("status", "--json").code == 0

    before = known_hosts.read_text()
    server.kill()
    server.new_host_key()
    server.start()
    refused = laptop.call("status", "--json")
    assert (refused.code, codes(refused)) == (4, ["ssh_host_key_changed"])
    assert laptop.call("hosts", "rebind", "127.0.0.1", "--confirm", "localhost").code == 1
    assert known_hosts.read_text() == before
    assert laptop.call("hosts", "rebind", "127.0.0.1", "--confirm", "127.0.0.1").code == 0
    assert known_hosts.read_text() == f"[127.0.0.1]:{server.port} {server.public_key}\n"
    assert laptop.call("status", "--json").code == 0
