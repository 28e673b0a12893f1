from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eagle3_backend.drafter import inspection
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inspection import Inspection, inspect
from eagle3_backend.drafter.summary import Group, Summary


@pytest.fixture
def target(tmp_path: Path, weights) -> Path:
    """Two layers of four experts, the second layer in another dtype."""
    names = [f"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight" for layer in range(2) for expert in range(4)]
    tensors = {name: ("bfloat16" if ".0.mlp" in name else "float8_e4m3fn", (2, 8)) for name in names}
    weights.safetensors(tmp_path / "model.safetensors", {**tensors, "lm_head.weight": ("bfloat16", (16, 8))})
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


def test_config_and_weights_are_told_together(target) -> None:
    found = inspect(LocalFolder(target))
    assert (found.config, found.findings, found.path) == ({"model_type": "llama"}, (), str(target))
    assert found.inventory is not None and len(found.inventory.tensors) == 9


def test_names_that_differ_in_numbers_become_one_group(target) -> None:
    summary = inspect(LocalFolder(target)).summary
    assert summary.groups == (
        Group("lm_head.weight", 1, 256, "bfloat16", (16, 8)),
        Group("model.layers.*.mlp.experts.*.up_proj.weight", 8, 192, None, (2, 8)),
    )
    assert (summary.tensors, summary.bytes) == (9, 448)
    assert summary.dtypes == {"bfloat16": 384, "float8_e4m3fn": 64}
    assert summary.numbers == {"layers": 2, "experts": 4}


def test_a_large_checkpoint_is_told_in_sum_alone(target, monkeypatch) -> None:
    monkeypatch.setattr(inspection, "MAX_LISTED", 8)
    found = inspect(LocalFolder(target))
    assert (found.inventory, found.summary.tensors) == (None, 9)


def test_what_is_wrong_with_either_is_told(target) -> None:
    (target / "config.json").write_text("[]")
    (target / "model.safetensors").write_bytes(b"")
    found = inspect(LocalFolder(target))
    assert [finding.code for finding in found.findings] == ["json_invalid", "shard_truncated"]
    assert found.config is None


@pytest.mark.parametrize("listed", [True, False])
def test_an_inspection_travels(target, monkeypatch, listed) -> None:
    monkeypatch.setattr(inspection, "MAX_LISTED", 100 if listed else 0)
    (target / "config.json").unlink()
    found = inspect(LocalFolder(target))
    assert Inspection.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_summary_of_nothing_is_empty(tmp_path) -> None:
    assert inspect(LocalFolder(tmp_path)).summary == Summary(0, 0, {}, {}, ())


def test_the_room_is_light() -> None:
    """No library of tensors, and no reader of archives before a file needs it."""
    code = (
        "import sys, pkgutil, importlib, eagle3_backend.drafter as room\n"
        "for module in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "    if not module.name.endswith(('.pickled', '.opcodes')): importlib.import_module(module.name)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "torch",
        "numpy",
        "safetensors",
        "transformers",
        "pydantic",
        "asyncio",
        "zipfile",
        "pickletools",
        "sqlite3",
    }
    assert "eagle3_backend" in loaded and heavy & set(loaded) == set()
