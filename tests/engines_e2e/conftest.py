"""One small campaign with the real engines, made once through the command line and shared by all tests here.

The workspace is `EAGLE3_E2E_WORKSPACE` (default `.build/e2e`): environments and finished stages in it are used again.
Published prompts come from `EAGLE3_PROMPTS` (default `../shared/data/prompts`); without them the shipped unseen set
is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from eagle3_backend.runs.store import Key, Store

REPOSITORY = Path(__file__).parents[2]
PUBLISHED = ("mt_bench.jsonl", "alpaca.jsonl")


@dataclass
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self):
        """The one object on standard output."""
        return json.loads(self.stdout)


@dataclass
class Laptop:
    """A laptop with folders of its own, and the campaign that it works on. ``settings`` go with every command."""

    home: Path
    workspace: Path
    profile: Path
    settings: tuple[str, ...] = ()
    begun: list[subprocess.Popen] = field(default_factory=list)

    def begin(self, *argv: str) -> subprocess.Popen:
        """Start a command; its standard error goes to this process's own, so that progress is seen."""
        flags = [flag for setting in self.settings for flag in ("--set", setting)]
        folders = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
        process = subprocess.Popen(
            [sys.executable, "-m", "eagle3_tui.cli", "--profile", str(self.profile), "--no-input", *flags, *argv],
            env={**os.environ, **folders},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.begun.append(process)
        return process

    def call(self, *argv: str, timeout: float = 120) -> Ended:
        """Run a command to its end."""
        process = self.begin(*argv)
        stdout, stderr = process.communicate(timeout=timeout)
        print(stderr, file=sys.stderr)
        return Ended(process.returncode, stdout, stderr)

    def give_up(self) -> None:
        """End the commands that are still there. Runs on the host go on."""
        for process in self.begun:
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def campaign(self) -> Path:
        return self.workspace / self.profile.stem

    def runs(self) -> dict[str, list[Path]]:
        """Attempt folders on the host by run, oldest first."""
        folder = self.workspace / ".eagle3" / "runs"
        attempts: dict[str, list[Path]] = {}
        for attempt in sorted(folder.glob("*/*"), key=lambda path: (path.parent.name, int(path.name))):
            attempts.setdefault(attempt.parent.name, []).append(attempt)
        return attempts

    def stages(self) -> dict[str, dict]:
        """What `status` says of each stage."""
        return {stage["name"]: stage for stage in self.call("status", "--json").json["stages"]}

    def stored_journal(self, run: str, attempt: int) -> list[str]:
        """The laptop's copy of a journal, line by line; empty before anything is stored."""
        identity = json.loads((self.workspace / ".eagle3" / "workspace.json").read_text())["id"]
        path = next((self.home / "state").rglob("*.sqlite"), None)
        if path is None:
            return []
        store = Store(path)
        try:
            return [line.text for line in store.lines(Key(identity, run, attempt))]
        finally:
            store.close()


def wait_until(condition, seconds: float, what: str):
    """The first true value of ``condition``; fails the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.5)
    pytest.fail(f"{what} did not happen within {seconds:.0f} s")


def gateways_of(process: subprocess.Popen) -> list[psutil.Process]:
    """The gateway processes that a command has started on its embedded host; a shell around one is not it."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = []
    for child in children:
        try:
            words = child.cmdline()
        except psutil.Error:
            continue
        if "eagle3_backend.agent.gateway" in words:
            found.append(child)
    return found


@pytest.fixture(scope="session")
def tools():
    """Helpers that are no fixtures of their own."""

    class Tools:
        pass

    Tools.wait_until = staticmethod(wait_until)
    Tools.gateways_of = staticmethod(gateways_of)
    return Tools


@pytest.fixture(scope="session")
def workspace():
    path = Path(os.environ.get("EAGLE3_E2E_WORKSPACE", REPOSITORY / ".build" / "e2e")).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def profile(workspace, tmp_path_factory):
    """profiles/local.toml on the tests' workspace."""
    shipped = REPOSITORY / "profiles"
    text = (shipped / "local.toml").read_text(encoding="utf-8")
    changed = text.replace('workspace = "~/eagle3"', f'workspace = "{workspace}"').replace(
        '"prompts/', f'"{shipped}/prompts/'
    )
    assert changed.count(str(workspace)) >= 1
    path = tmp_path_factory.mktemp("profile") / "local.toml"
    path.write_text(changed, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def published():
    """The setting that names the published prompts, if they are at hand."""
    folder = Path(os.environ.get("EAGLE3_PROMPTS", REPOSITORY.parent / "shared" / "data" / "prompts"))
    files = [str(folder / name) for name in PUBLISHED]
    if not all(Path(name).is_file() for name in files):
        return ()
    return (f"prompts.published={json.dumps(files)}",)


@pytest.fixture(scope="session")
def make_laptop(workspace, profile, tmp_path_factory):
    """A new laptop that has never seen the workspace; with settings of its own."""
    laptops = []

    def make(*settings: str) -> Laptop:
        laptops.append(Laptop(tmp_path_factory.mktemp("laptop"), workspace, profile, settings))
        return laptops[-1]

    yield make
    for laptop in laptops:
        laptop.give_up()


@pytest.fixture(scope="session")
def laptop(make_laptop, published):
    """The laptop that made the campaign."""
    return make_laptop(*published)


@pytest.fixture(scope="session")
def campaign(laptop):
    """The campaign through bench: what `run --json` printed."""
    ended = laptop.call("run", "--through", "bench", "--json", timeout=1700)
    assert ended.code == 0, ended.stderr[-4000:]
    print(ended.stdout)
    return ended.json
