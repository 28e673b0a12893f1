"""One attempt of a stage as it lies on a host, for tests that run stages in this process."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.stages.context import StageContext

STAND_IN = Path(__file__).parent / "stand_in_target.py"


class Attempt(StageContext):
    """A stage context that remembers what it was told, beside writing it to the journal."""

    def lines(self, kind: str) -> list[dict[str, Any]]:
        text = (self.run_directory / "journal.jsonl").read_text(encoding="utf-8")
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]

    def codes(self) -> list[str]:
        return [line["code"] for line in self.lines("finding")]

    @property
    def summary(self) -> dict[str, Any]:
        manifest = read_manifest(self.output)
        assert manifest is not None
        return dict(manifest["summary"])

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.output / name).read_bytes().splitlines()]

    def ask_to_leave(self) -> None:
        self._stop.set()


@pytest.fixture
def held_bytes() -> Callable[[Callable[[], Any]], float]:
    """Peak bytes of the tensors that a call makes, as the benchmarks count them."""
    path = Path(__file__).parents[2] / "benchmarks" / "counting.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda call: module.counted(call)["peak_gib"] * 2**30


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., Attempt]:
    """Make the next attempt of a stage: ``attempt("prompts", {"files": [path]}, holdout=2)``."""
    numbers: dict[str, int] = {}

    def make(stage: str, inputs: dict[str, Any] | None = None, engine: Any = None, **parameters: Any) -> Attempt:
        numbers[stage] = numbers.get(stage, 0) + 1
        directory = tmp_path / "w/.eagle3/runs" / stage / str(numbers[stage])
        directory.mkdir(parents=True)
        plain = {
            kind: [str(path) for path in value] if isinstance(value, list) else str(value)
            for kind, value in (inputs or {}).items()
        }
        accepted = parameters.pop("accepted", [])
        spec = {
            "run": stage,
            "stage": stage,
            "stage_version": 1,
            "fingerprint": "f" * 16,
            "parameters": asdict(STAGES[stage].parameters(**parameters)),
            "inputs": plain,
            "output": str(tmp_path / "w/campaign" / stage / "f"),
            "engine": engine,
            "environment": STAGES[stage].environment,
            "payload": "p",
            "accepted": accepted,
        }
        (directory / "spec.json").write_text(json.dumps(spec))
        context = Attempt(directory)
        context.output.mkdir(parents=True, exist_ok=True)
        return context

    return make


@pytest.fixture
def stand_in() -> Callable[..., dict[str, Any]]:
    """The launch plan of a program that behaves like vLLM with a tiny target (`stand_in_target.py`)."""

    def plan(**variables: str) -> dict[str, Any]:
        return {
            "engine": "vllm",
            "device": "cpu",
            "argv": [sys.executable, str(STAND_IN), "{model}", "--port", "{port}"],
            "env": variables,
            "reasons": {},
            "expects": {},
            "api_key": {"variable": "VLLM_API_KEY"},
        }

    return plan


def _module(name: str) -> ModuleType:
    """A module beside this file, imported by those who ask for it only: some need torch."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks for its own module there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """Makers of a tiny target, its conversations and its hidden states (`tiny_campaign.py`); needs torch."""
    return _module("tiny_campaign")


@pytest.fixture(scope="session")
def plain_engine() -> ModuleType:
    """Serving without an engine (`plain_engine.py`); needs torch."""
    return _module("plain_engine")


@pytest.fixture
def campaign(tmp_path: Path, drafters: ModuleType) -> Iterator[Any]:
    """What bench and serve read, and starts of both as processes (`bench_campaign.py`)."""
    campaign = _module("bench_campaign").Campaign(tmp_path, drafters)
    yield campaign
    for attempt in campaign.started:
        if attempt.process.poll() is None:
            attempt.process.terminate()
            attempt.process.wait(timeout=60)


@pytest.fixture
def training_inputs(tiny: ModuleType, attempt: Callable[..., Attempt], tmp_path: Path) -> dict[str, Path]:
    """What the tiny campaign's training reads."""
    from eagle3_backend.stages import vocab

    target = tiny.write_target(tmp_path / "target")
    data = tiny.write_conversations(tmp_path / "conversations")
    chosen = attempt("vocab", {"target": target, "conversations": data}, draft_vocab_size=44)
    vocab.run(chosen)
    return {"target": target, "store": tiny.write_store(tmp_path / "store", target), "vocab": chosen.output}


@dataclass(frozen=True)
class Served:
    """What a right drafter did beside its target: the target's ``folder`` and model, the drafter, and the requests."""

    folder: Path
    model: Any
    drafter: Any
    target_ids: Any
    requests: list[Any]
    depth: int


@pytest.fixture(scope="session")
def served(plain_engine: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("served")
    model = plain_engine.make_target(folder)
    drafter = plain_engine.make_drafter(model)
    requests = [plain_engine.serve(model, drafter, plain_engine.KEPT, prompt) for prompt in plain_engine.prompts()]
    return Served(folder, model, drafter, plain_engine.KEPT, requests, plain_engine.DEPTH)
