"""Finding an interpreter for the agent on a host that has only what the test puts on its PATH."""

from __future__ import annotations

import shutil
import sys

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.profile import Environment
from eagle3_backend.remote import bootstrap
from eagle3_backend.remote.command import CommandLink

TOOLS = ("sh", "mkdir", "cat", "wc", "mv", "rm", "chmod")


class BareHost:
    """A host of a few tools, reached by a transport command."""

    def __init__(self, folder):
        self.home = folder / "home"
        self.bin = folder / "bin"
        self.home.mkdir()
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.link = CommandLink(["env", "-i", f"PATH={self.bin}", f"HOME={self.home}"])

    def program(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    async def prepare(self, package, pythons=bootstrap.ON_PATH, workspace="~/eagle3"):
        return await bootstrap.prepare(self.link, workspace, pythons, package)


@pytest.fixture
def host(tmp_path):
    return BareHost(tmp_path)


REAL = f'exec {sys.executable} "$@"'


async def test_an_interpreter_on_the_path_serves_and_a_tilde_is_the_hosts_home(host, standin):
    host.program("python3.11", REAL)
    foothold = await host.prepare(standin)
    assert foothold.python == str(host.bin / "python3.11")
    assert foothold.workspace == str(host.home / "eagle3")
    assert (host.home / "eagle3" / ".eagle3" / "payload" / standin.sha256[:12]).is_dir()


async def test_one_without_psutil_is_passed_over(host, standin):
    host.program("python3", "exit 1")
    host.program("python3.12", REAL)
    assert (await host.prepare(standin)).python.endswith("python3.12")


async def test_an_environment_is_built_where_uv_is_there(host, standin):
    build = f'for e in "$@"; do :; done; mkdir -p "$e/bin"; printf \'#!/bin/sh\\n{REAL}\\n\' > "$e/bin/python"'
    host.program("uv", f'case $1 in venv) {build}; chmod 755 "$e/bin/python";; esac')
    foothold = await host.prepare(standin)
    assert foothold.python == f"{foothold.workspace}/.eagle3/agent-env/bin/python"
    (host.bin / "uv").unlink()
    assert await host.prepare(standin) == foothold


async def test_without_any_the_finding_names_what_was_found(host, standin):
    host.program("python3", "exit 1")
    with pytest.raises(FindingError) as caught:
        await host.prepare(standin)
    finding = caught.value.findings[0]
    assert finding.code == "host_python_missing"
    assert str(host.bin / "python3") in finding.message
    assert "psutil" in finding.fix


async def test_a_path_with_blanks_and_quotes_is_a_path(host, standin, tmp_path):
    host.program("python3", REAL)
    workspace = str(tmp_path / "it's a $HOME; 'place'")
    assert (await host.prepare(standin, workspace=workspace)).workspace == workspace


def test_the_profile_decides_which_interpreters_are_asked():
    named = {"host": Environment(python="/opt/a/bin/python"), "train": Environment(python="/opt/t/bin/python")}
    assert bootstrap.candidates("embedded", named) == (sys.executable,)
    assert bootstrap.candidates("gpu", named) == ("/opt/a/bin/python",)
    assert bootstrap.candidates("gpu", {"train": named["train"]}) == ("/opt/t/bin/python", *bootstrap.ON_PATH)
    assert bootstrap.candidates("gpu", {"train": Environment(set="train-cpu")}) == bootstrap.ON_PATH


@pytest.mark.parametrize("words", [["sh", "-c", "echo gone >&2; exit 3"], ["true"]])
async def test_what_runs_no_shell_is_told_from_an_unwritable_workspace(words, standin):
    with pytest.raises(FindingError) as caught:
        await bootstrap.prepare(CommandLink(words), "~/eagle3", bootstrap.ON_PATH, standin)
    (finding,) = caught.value.findings
    assert finding.code == "host_shell_failed" and ("gone" in finding.message or "said nothing" in finding.message)
