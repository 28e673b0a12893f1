"""The commands as processes, against the embedded host, a transport command and SSH servers on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading

import asyncssh
import pytest


@pytest.fixture
def laptop(tmp_path):
    """Runs a command line on a laptop with a home of its own."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True, mode=0o700)

    def run(*argv):
        folders = {f"XDG_{kind}_HOME": str(tmp_path / "home" / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
        return subprocess.run(
            [sys.executable, "-m", "eagle3_tui.cli", "--no-input", *argv],
            env={**os.environ, "HOME": str(tmp_path / "home"), "SSH_AUTH_SOCK": "", **folders},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    return run


@pytest.fixture
def profile(tmp_path):
    """Writes a profile with this [host] table and returns its path."""

    def write(host):
        path = tmp_path / "mine.toml"
        path.write_text(
            f"[host]\n{host}\nworkspace = '{tmp_path}/w'\n"
            f"[environments.train]\npython = '{sys.executable}'\n[environments.vllm]\npython = '{tmp_path}/absent'\n"
            "[target]\nmodel = 'demo:smollm2-135m'\n"
        )
        return str(path)

    return write


@pytest.fixture
def ssh_server():
    """An SSH server on loopback that lets nobody in: its port and its host key."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen():
        return await asyncssh.listen("127.0.0.1", 0, server_host_keys=[key])

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    yield server.get_port(), key
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def codes(result):
    return [finding["code"] for finding in json.loads(result.stdout)["findings"]]


def test_status_of_a_new_workspace_on_the_embedded_host(laptop, profile, tmp_path):
    result = laptop("--profile", profile('address = "embedded"'), "status", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["workspace"] == f"{tmp_path}/w" and answer["host"]["link"] == "live"
    assert {stage["name"]: stage["state"] for stage in answer["stages"]}["setup"] == "ready"


def test_doctor_of_the_embedded_host_checks_laptop_link_and_host(laptop, profile):
    result = laptop("--profile", profile('address = "embedded"'), "doctor", "--json")
    checks = json.loads(result.stdout)["checks"]
    assert {"laptop", "link", "host", "room"} <= {check["area"] for check in checks}
    assert result.returncode == (1 if any(check["level"] == "fail" for check in checks) else 0)


def test_a_transport_command_is_a_host_too(laptop, profile):
    result = laptop("--profile", profile('transport = ["env"]'), "status", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["host"]["link"] == "live"


def test_a_missing_environment_refuses_the_start_and_dry_run_tells_it(laptop, profile):
    path = profile('address = "embedded"')
    started = laptop("--profile", path, "run", "--through", "generate", "--json")
    assert started.returncode == 1 and "environment_missing" in codes(started)
    dry = laptop("--profile", path, "run", "--through", "generate", "--dry-run")
    assert dry.returncode == 0 and dry.stdout.startswith("#!/bin/sh")
    assert "environment_missing" in dry.stderr


def test_a_host_that_is_reached_is_remembered(laptop, profile):
    laptop("--profile", profile('address = "embedded"'), "hosts", "add", "embedded")
    hosts = json.loads(laptop("hosts", "list", "--json").stdout)["hosts"]
    assert [host["name"] for host in hosts] == ["embedded"]


def test_an_unknown_host_is_exit_code_3(laptop, profile):
    result = laptop("--profile", profile('address = "no-such-host.invalid"'), "status", "--json")
    assert result.returncode == 3 and codes(result) in (["host_unknown"], ["host_unreachable"])


def test_a_port_where_nobody_listens_is_exit_code_3(laptop, profile):
    result = laptop("--profile", profile('address = "127.0.0.1"\nport = 1'), "run", "--through", "bench", "--json")
    assert result.returncode == 3 and codes(result) == ["host_unreachable"]


def test_an_unknown_host_key_is_exit_code_4_and_known_hosts_stays_as_it_was(laptop, profile, ssh_server, tmp_path):
    port, key = ssh_server
    result = laptop("--profile", profile(f'address = "127.0.0.1"\nport = {port}'), "status", "--json")
    assert result.returncode == 4 and codes(result) == ["ssh_host_key_unknown"]
    assert key.get_fingerprint() in result.stderr
    assert not (tmp_path / "home" / ".ssh" / "known_hosts").exists()


def test_a_changed_host_key_is_exit_code_4_with_both_fingerprints(laptop, profile, ssh_server, tmp_path):
    port, key = ssh_server
    old = asyncssh.generate_private_key("ssh-ed25519")
    line = f"[127.0.0.1]:{port} {old.export_public_key().decode().strip()}\n"
    known_hosts = tmp_path / "home" / ".ssh" / "known_hosts"
    known_hosts.write_text(line)
    result = laptop("--profile", profile(f'address = "127.0.0.1"\nport = {port}'), "attach", "--json")
    assert result.returncode == 4 and codes(result) == ["ssh_host_key_changed"]
    assert key.get_fingerprint() in result.stderr and old.get_fingerprint() in result.stderr
    assert known_hosts.read_text() == line


def test_a_key_given_by_fingerprint_is_saved_and_then_authentication_is_refused(laptop, profile, ssh_server, tmp_path):
    port, key = ssh_server
    path = profile(f'address = "127.0.0.1"\nport = {port}')
    result = laptop("--profile", path, "hosts", "trust", "127.0.0.1", "--fingerprint", key.get_fingerprint(), "--json")
    assert result.returncode == 4 and codes(result) == ["ssh_authentication_failed"]
    assert key.export_public_key().decode().split()[1] in (tmp_path / "home" / ".ssh" / "known_hosts").read_text()
