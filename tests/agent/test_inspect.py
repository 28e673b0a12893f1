"""What a gateway tells of a model directory."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from eagle3_backend.agent.frames import MAX_FRAME
from eagle3_backend.drafter.inspection import Inspection
from eagle3_backend.drafter.tensorfile import header_bytes, size_of


def write(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]], data: bytes = b"") -> None:
    """A sparse file: values that are not given take no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = header_bytes(tensors, {})
    path.write_bytes(header + data)
    with open(path, "r+b") as file:
        file.truncate(len(header) + sum(size_of(*entry) for entry in tensors.values()))


@pytest.fixture
def drafter(workspace: Path) -> Path:
    folder = workspace / "drafts" / "one"
    maps = struct.pack("<4q", 0, 0, 3, 3)
    write(folder / "model.safetensors", {"d2t": ("int64", (4,)), "fc.weight": ("bfloat16", (8, 24))}, maps)
    (folder / "config.json").write_text('{"hidden_size": 8}')
    return folder


@pytest.mark.parametrize("absolute", [True, False])
def test_a_drafter_is_told_whole_by_an_absolute_path_or_one_in_the_workspace(gateway, workspace, drafter, absolute):
    path = drafter if absolute else drafter.relative_to(workspace)
    found = Inspection.from_json(gateway.request("inspect", path=str(path)))
    assert (found.path, found.config, found.findings) == (str(drafter), {"hidden_size": 8}, ())
    assert found.inventory.tensors["fc.weight"].shape == (8, 24)
    assert found.inventory.integers("d2t") == [0, 0, 3, 3]


def test_a_target_of_a_trillion_parameters_is_told_in_a_fraction_of_a_frame(gateway, workspace):
    shards = 4
    places = {}
    for shard in range(shards):
        experts = [f"model.layers.{shard}.mlp.experts.{expert}" for expert in range(1500)]
        tensors = {
            f"{expert}.{part}_proj.weight": ("int8", (2048, 7168)) for expert in experts for part in ("up", "down")
        }
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        write(workspace / "target" / file, tensors)
        places.update(dict.fromkeys(tensors, file))
    (workspace / "target" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (workspace / "target" / "config.json").write_text("{}")
    answer = gateway.request("inspect", path="target")
    assert len(json.dumps(answer)) < MAX_FRAME // 100
    found = Inspection.from_json(answer)
    assert (found.inventory, found.summary.tensors, found.findings) == (None, 12000, ())
    assert found.summary.numbers == {"layers": 4, "experts": 1500}
    assert [group.pattern for group in found.summary.groups] == [
        "model.layers.*.mlp.experts.*.up_proj.weight",
        "model.layers.*.mlp.experts.*.down_proj.weight",
    ]


def test_nothing_outside_of_the_directory_is_read(gateway, drafter, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text('{"token": "secret"}')
    (drafter / "config.json").unlink()
    (drafter / "config.json").symlink_to(secret)
    answer = gateway.request("inspect", path=str(drafter))
    assert answer["config"] is None and [finding["code"] for finding in answer["findings"]] == ["file_outside"]
    assert "token" not in json.dumps(answer)


def test_what_is_no_directory_is_told_in_findings(gateway, workspace):
    answer = gateway.request("inspect", path="absent")
    assert [finding["code"] for finding in answer["findings"]] == ["file_missing", "folder_unreadable"]
