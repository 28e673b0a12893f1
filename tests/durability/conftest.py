"""A campaign whose training really runs, on a host behind a real sshd, driven by the command line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eagle3_backend.agent.ladder import members_of
from eagle3_backend.pipeline.plan import plan_campaign
from eagle3_backend.pipeline.stages import needed
from eagle3_backend.profile import load

REPOSITORY = Path(__file__).parents[2]
INPUTS = Path(__file__).parent / "training_inputs.py"


@pytest.fixture(scope="session")
def train_python() -> str:
    """An interpreter with torch for the host; without one the test is skipped, except where CI is set."""
    default = REPOSITORY / ".build" / "train" / "bin" / "python"
    path = os.environ.get("EAGLE3_TRAIN_PYTHON", str(default))
    if not os.access(path, os.X_OK):
        reason = f"no training environment at {path}: make it, or name one in EAGLE3_TRAIN_PYTHON"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return path


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """What is started meanwhile has one core for good: threads that wait for each other are slow on a busy machine,
    and the number of threads decides the last bits of a sum."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@dataclass
class Site:
    """A workspace on a host, the server that leads there, and the laptop with its profile."""

    server: Any
    laptop: Any
    train_python: str
    train: str

    @property
    def workspace(self) -> Path:
        return self.laptop.workspace

    def write_profile(self) -> None:
        host = self.server.host(workspace=str(self.workspace))
        self.laptop.profile.write_text(
            f'[host]\naddress = "{host.address}"\nport = {host.port}\nuser = "{host.user}"\n'
            f'identity = "{self.laptop.home}/id"\nworkspace = "{host.workspace}"\n'
            f'[environments.train]\npython = "{self.train_python}"\n'
            f'[environments.vllm]\npython = "{self.train_python}"\n'
            '[target]\nmodel = "/models/tiny"\n'
            f"[stages.train]\n{self.train}\n"
        )

    def place_inputs(self) -> None:
        """Make everything before `train` fresh."""
        profile = load(self.laptop.profile)
        plan = plan_campaign(profile.campaign, str(self.workspace), profile.parameters, profile.uploads()[0])
        wanted = {
            name: {"output": plan.stages[name].output, "fingerprint": plan.stages[name].fingerprint, "run": "placed"}
            for name in needed("train")
            if name != "train"
        }
        path = f"{REPOSITORY}/backend{os.pathsep}{REPOSITORY}/kernels"
        subprocess.run(
            [self.train_python, INPUTS],
            input=json.dumps(wanted).encode(),
            env={**os.environ, "PYTHONPATH": path},
            check=True,
        )

    def attempts(self, stage: str) -> list[Path]:
        """The attempt folders of a stage's only run, oldest first."""
        ((_, attempts),) = ((run, paths) for run, paths in self.laptop.runs().items() if f"-{stage}-" in run)
        return attempts

    def end(self) -> None:
        """Kill every stage that still works here; its supervisor leaves with it."""
        for attempts in self.laptop.runs().values():
            for attempt in attempts:
                for process in members_of(None, str(attempt)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)

    def weights(self) -> str:
        """Hash of the trained drafter's file."""
        (path,) = self.laptop.campaign.glob("train/*/drafter.safetensors")
        return hashlib.sha256(path.read_bytes()).hexdigest()


def journal(attempt: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind in an attempt's journal; [] before there is one, without a torn last line."""
    path = attempt / "journal.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    return [line for line in map(json.loads, whole) if line["kind"] == kind]


@pytest.fixture
def read_journal() -> Callable[[Path, str], list[dict[str, Any]]]:
    return journal


@pytest.fixture
def start_host(make_sshd) -> Callable[..., Any]:
    """As `make_sshd`, for a host with one core."""

    def start(**rest: Any) -> Any:
        with one_core():
            return make_sshd(**rest)

    return start


@pytest.fixture
def make_site(tmp_path, start_host, laptop_at, train_python) -> Iterator[Callable[..., Site]]:
    """A site ready to train: ``make_site("name", train="epochs = 3")``."""
    sites: list[Site] = []

    def make(name: str, train: str) -> Site:
        home, workspace, server = tmp_path / name / "home", tmp_path / name / "workspace", start_host()
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        shutil.copy(server.folder / "id", home / "id")
        shutil.copy(server.known_hosts, home / ".ssh" / "known_hosts")
        alone = {"HOME": str(home), "SSH_AUTH_SOCK": ""}
        laptop = laptop_at(home, workspace, tmp_path / name / "tiny.toml", environment=alone)
        site = Site(server, laptop, train_python, train)
        site.write_profile()
        site.place_inputs()
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.end()
