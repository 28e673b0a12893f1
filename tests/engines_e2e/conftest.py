"""One small campaign with the real engines, made once through the command line and shared by all tests here.

The workspace is `EAGLE3_E2E_WORKSPACE` (default `.build/e2e`): environments and finished stages in it are used again.
Published prompts come from `EAGLE3_PROMPTS` (default `../shared/data/prompts`); without them the shipped unseen set
is measured.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PUBLISHED = ("mt_bench.jsonl", "alpaca.jsonl")


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
def make_laptop(workspace, profile, tmp_path_factory, laptop_at):
    """A new laptop that has never seen the workspace; with settings of its own."""
    return lambda *settings: laptop_at(tmp_path_factory.mktemp("laptop"), workspace, profile, settings)


@pytest.fixture(scope="session")
def laptop(make_laptop, published):
    """The laptop that made the campaign."""
    return make_laptop(*published)


@pytest.fixture(scope="session")
def train_python(laptop):
    """The interpreter of the train environment."""
    ended = laptop.call("run", "--through", "setup", "--json", timeout=1700)
    assert ended.code == 0, ended.stderr[-4000:]
    return ended.json["result"]["environments"]["train"]["python"]


@pytest.fixture(scope="session")
def campaign(laptop):
    """The campaign through bench: what `run --json` printed."""
    ended = laptop.call("run", "--through", "bench", "--json", timeout=1700)
    assert ended.code == 0, ended.stderr[-4000:]
    print(ended.stdout)
    return ended.json
