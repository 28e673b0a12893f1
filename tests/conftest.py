"""What tests of several rooms share: real SSH servers, and laptops that use the command line."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SUPPORT = Path(__file__).parent / "support"


def load_support(name: str) -> ModuleType:
    """A helper module of `support` (tests are no package); only when it is asked for, as the stages' environment lacks
    what some of them import."""
    name, path = f"support_{name}", SUPPORT / f"{name}.py"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long begin first: of several workers none has one left when the others have ended."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start real sshds; without the program the test is skipped, except where CI is set."""
    sshd = load_support("sshd")
    if not Path(sshd.PROGRAM).exists():
        if os.environ.get("CI"):
            pytest.fail(f"{sshd.PROGRAM} is required in CI: install openssh-server")
        pytest.skip(f"{sshd.PROGRAM} is not here: install openssh-server")
    servers: list[Any] = []

    def make(extra: str = "Subsystem sftp internal-sftp", **rest: Any) -> Any:
        servers.append(sshd.Sshd(tmp_path / f"sshd{len(servers)}", extra, **rest).start())
        return servers[-1]

    yield make
    for server in servers:
        server.kill()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A stand-in for a Hugging Face hub, which the library asks from now on (`support/stand_in_hub.py`)."""
    with load_support("stand_in_hub").Hub() as started:
        started.enter(monkeypatch, tmp_path / "hf")
        yield started


@pytest.fixture(scope="session")
def tools() -> ModuleType:
    """Helpers that are no fixtures of their own."""
    return load_support("laptop")


@pytest.fixture(scope="session")
def drafters() -> ModuleType:
    """Whole drafters in small."""
    return load_support("drafters")


@pytest.fixture(scope="session")
def drafter_faults() -> ModuleType:
    """Single faults of a right drafter."""
    return load_support("drafter_faults")


@pytest.fixture(scope="session")
def harmless_changes() -> ModuleType:
    """Single changes of a right drafter that harm nothing."""
    return load_support("harmless_changes")


@pytest.fixture(scope="session")
def read_real_drafter(drafters: ModuleType) -> Callable[..., Any]:
    """A drafter directory with its weights, for faults to be put into."""
    return load_support("real_drafters").reader(drafters)


@pytest.fixture(scope="session")
def laptop_at(tools: ModuleType) -> Iterator[Callable[..., Any]]:
    """A laptop with a folder of its own for a workspace and a profile: ``laptop_at(home, workspace, profile)``."""
    laptops = []

    def make(*arguments: Any, **rest: Any) -> Any:
        laptops.append(tools.Laptop(*arguments, **rest))
        return laptops[-1]

    yield make
    for laptop in laptops:
        laptop.give_up()


@pytest.fixture(scope="session")
def sglang_environment() -> ModuleType:
    """SGLang's argument parser beside vLLM."""
    return load_support("sglang_environment")


@pytest.fixture(scope="session")
def speculators_environment() -> ModuleType:
    """speculators beside the train environment."""
    return load_support("speculators_environment")
