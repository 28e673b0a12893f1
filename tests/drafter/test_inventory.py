from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.findings import Finding, FindingError

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
U8 = ("uint8", (4,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "draft"
    path.mkdir()
    return path


@pytest.fixture
def sharded(folder, weights) -> Path:
    """Two shards with an index that is right."""
    weights.safetensors(folder / FIRST, {"a": U8, "b": U8}, {"format": "pt"})
    weights.safetensors(folder / SECOND, {"c": U8})
    weights.index(folder, {"a": FIRST, "b": FIRST, "c": SECOND})
    return folder


def read(folder: Path) -> Inventory:
    return read_inventory(LocalFolder(folder))


def only(inventory: Inventory) -> Finding:
    (finding,) = inventory.findings
    return finding


def test_a_single_file_is_listed_without_a_remark(folder, weights) -> None:
    weights.safetensors(folder / "model.safetensors", {"a": ("bfloat16", (2, 3)), "b": U8}, {"format": "pt"})
    inventory = read(folder)
    assert {name: (tensor.dtype, tensor.shape, tensor.file) for name, tensor in inventory.tensors.items()} == {
        "a": ("bfloat16", (2, 3), "model.safetensors"),
        "b": ("uint8", (4,), "model.safetensors"),
    }
    assert inventory.files == {"model.safetensors": (folder / "model.safetensors").stat().st_size}
    assert (inventory.findings, inventory.metadata, inventory.whole) == ((), {"format": "pt"}, True)


def test_shards_are_listed_together(sharded) -> None:
    inventory = read(sharded)
    assert {name: tensor.file for name, tensor in inventory.tensors.items()} == {"a": FIRST, "b": FIRST, "c": SECOND}
    assert inventory.findings == ()


def test_only_headers_are_read(sharded, weights) -> None:
    counting = weights.counting(sharded)
    inventory = read_inventory(counting)
    for file, size in inventory.files.items():
        base = min(tensor.start for tensor in inventory.tensors.values() if tensor.file == file)
        ends = [offset + length for name, offset, length in counting.ranges if name == file]
        assert (sum(length for name, _, length in counting.ranges if name == file), max(ends)) == (base, base)
        assert base < size


def test_values_of_maps_are_read_when_they_are_asked_for(folder, weights) -> None:
    offsets = struct.pack("<3q", 0, 5, -2)
    weights.safetensors(folder / "model.safetensors", {"d2t": ("int64", (3,), offsets), "w": ("float32", (2,))})
    inventory = read(folder)
    assert inventory.integers("d2t") == [0, 5, -2]
    assert inventory.integers("w") is None
    assert inventory.integers("t2d") is None


def test_values_that_cannot_be_read_any_more_are_a_finding(folder, weights) -> None:
    weights.safetensors(folder / "model.safetensors", {"d2t": ("int64", (3,))})
    inventory = read(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FindingError, match="file_unreadable"):
        inventory.integers("d2t")


def test_a_missing_shard_is_named_and_the_others_are_listed(sharded) -> None:
    (sharded / SECOND).unlink()
    inventory = read(sharded)
    finding = only(inventory)
    assert (finding.code, finding.path, finding.actual) == ("shard_missing", str(sharded / SECOND), [SECOND])
    assert set(inventory.tensors) == {"a", "b"} and not inventory.whole


def test_a_pointer_among_the_shards_is_named_and_nothing_else_is_said_of_its_tensors(sharded) -> None:
    (sharded / SECOND).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 100\n")
    finding = only(read(sharded))
    assert (finding.code, finding.path) == ("lfs_pointer", str(sharded / SECOND))


def test_a_tensor_of_the_index_that_its_file_lacks_is_an_error(sharded, weights) -> None:
    weights.index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND})
    finding = only(read(sharded))
    assert (finding.code, finding.path, finding.actual) == ("index_tensor_missing", str(sharded / SECOND), ["d"])


def test_a_tensor_that_lies_in_another_shard_is_a_warning(sharded, weights) -> None:
    weights.index(sharded, {"a": FIRST, "b": SECOND, "c": SECOND})
    inventory = read(sharded)
    assert (only(inventory).code, inventory.whole) == ("index_tensor_moved", True)


def test_a_tensor_that_the_index_does_not_name_is_a_warning(sharded, weights) -> None:
    weights.index(sharded, {"a": FIRST, "c": SECOND})
    inventory = read(sharded)
    assert (only(inventory).code, only(inventory).actual, inventory.whole) == ("index_tensor_unlisted", ["b"], True)


def test_a_tensor_in_two_shards_is_an_error(sharded, weights) -> None:
    weights.safetensors(sharded / SECOND, {"b": U8, "c": U8})
    finding = only(read(sharded))
    assert (finding.code, finding.path) == ("tensor_duplicate", "b")
    assert FIRST in finding.message and SECOND in finding.message


def test_a_file_beside_the_shards_is_not_read_where_engines_do_not(sharded, weights) -> None:
    weights.safetensors(sharded / "consolidated.safetensors", {"x": U8})
    inventory = read(sharded)
    assert (only(inventory).code, "x" in inventory.tensors, inventory.whole) == ("file_unlisted", False, True)


def test_an_index_beside_a_single_file_is_ambiguous(sharded, weights) -> None:
    weights.safetensors(sharded / "model.safetensors", {"x": U8})
    assert only(read(sharded)).code == "weights_ambiguous"


@pytest.mark.parametrize(
    "places",
    [
        None,
        [],
        {},
        {"a": 3},
        {"a": ["b"]},
        {"a": None},
        {"a": "../other.safetensors"},
        {"a": "/etc/passwd"},
        {"a": "config.json"},
    ],
)
def test_an_index_that_makes_no_sense_is_told_and_the_files_are_read_all_the_same(sharded, weights, places) -> None:
    weights.index(sharded, places)
    inventory = read(sharded)
    assert only(inventory).code == "index_invalid"
    assert set(inventory.tensors) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"\xef\xbb\xbf{}", "json_bom"), (b"[", "json_invalid"), (b"version https://git-lfs", "lfs_pointer")],
)
def test_an_index_that_cannot_be_read_is_told_and_the_files_are_read_all_the_same(sharded, content, code) -> None:
    (sharded / INDEX).write_bytes(content)
    inventory = read(sharded)
    assert only(inventory).code == code
    assert set(inventory.tensors) == {"a", "b", "c"}


def test_shards_without_an_index_are_read_with_a_warning(sharded) -> None:
    (sharded / INDEX).unlink()
    inventory = read(sharded)
    assert (only(inventory).code, set(inventory.tensors)) == ("index_missing", {"a", "b", "c"})


def test_a_shard_that_is_missing_by_its_number_alone_is_told(sharded) -> None:
    (sharded / INDEX).unlink()
    (sharded / FIRST).unlink()
    assert [finding.code for finding in read(sharded).findings] == ["index_missing", "shard_missing"]
    assert read(sharded).findings[-1].actual == [FIRST]


def test_a_directory_without_weights_is_an_error(folder) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "training_args.bin").write_bytes(b"")
    assert (only(read(folder)).code, only(read(folder)).path) == ("weights_missing", str(folder))


def test_a_repository_of_the_hub_cache_is_sent_to_its_snapshots(folder) -> None:
    (folder / "snapshots").mkdir()
    assert "snapshots" in only(read(folder)).fix


@pytest.mark.parametrize("path", ["absent", "config.json"])
def test_what_is_no_directory_is_an_error(folder, path) -> None:
    (folder / "config.json").write_text("{}")
    assert only(read(folder / path)).code == "folder_unreadable"


def test_an_index_alone_tells_its_missing_shards(folder, weights) -> None:
    weights.index(folder, {"a": FIRST, "b": SECOND})
    assert only(read(folder)).actual == [FIRST, SECOND]


def test_a_weight_file_that_is_a_link_out_of_the_folder_is_refused(folder, weights) -> None:
    weights.safetensors(folder.parent / "model.safetensors", {"a": U8})
    (folder / "model.safetensors").symlink_to("../model.safetensors")
    assert only(read(folder)).code == "file_outside"


def test_a_dangling_link_is_told_as_a_file_that_cannot_be_read(folder) -> None:
    (folder / "model.safetensors").symlink_to("gone")
    assert only(read(folder)).code == "file_unreadable"


def test_a_pipe_is_not_waited_for(folder) -> None:
    os.mkfifo(folder / "model.safetensors")
    assert only(read(folder)).code == "file_irregular"


def test_safetensors_go_before_pickles(folder, weights) -> None:
    weights.safetensors(folder / "model.safetensors", {"a": U8})
    (folder / "pytorch_model.bin").write_bytes(b"not looked at")
    assert read(folder).findings == ()


def test_pickles_are_listed_where_there_is_nothing_else(folder, weights) -> None:
    data = struct.pack("<3q", 1, 2, 3)
    weights.pickled(
        folder / "pytorch_model.bin", {"d2t": weights.pickled_tensor("LongStorage", "0", [3], [1])}, {"0": data}
    )
    inventory = read(folder)
    assert (inventory.findings, inventory.integers("d2t")) == ((), [1, 2, 3])


def test_an_inventory_travels_with_the_values_of_its_maps(sharded, weights) -> None:
    weights.safetensors(sharded / SECOND, {"c": U8, "d2t": ("int64", (3,), struct.pack("<3q", 0, 5, -2))})
    inventory = read(sharded)
    arrived = Inventory.from_json(inventory.to_json())
    assert arrived == inventory and arrived.findings
    assert (arrived.integers("d2t"), arrived.integers("c")) == ([0, 5, -2], None)


def test_values_in_no_order_do_not_travel_and_that_is_told(folder, weights) -> None:
    rubbish = random.Random(0).randbytes(8 * 100_000)
    weights.safetensors(folder / "model.safetensors", {"d2t": ("int64", (100_000,), rubbish)})
    arrived = Inventory.from_json(read(folder).to_json())
    assert (only(arrived).code, only(arrived).path, arrived.integers("d2t")) == ("map_oversized", "d2t", None)


def test_values_that_cannot_be_read_do_not_stop_the_rest(folder, weights) -> None:
    weights.safetensors(folder / "model.safetensors", {"d2t": ("int64", (3,)), "t2d": ("bool", (5,))})
    inventory = read(folder)
    os.truncate(folder / "model.safetensors", inventory.tensors["t2d"].start + 2)
    arrived = Inventory.from_json(inventory.to_json())
    assert (only(arrived).code, arrived.integers("d2t")) == ("shard_truncated", [0, 0, 0])


def test_a_file_whose_name_cannot_be_shown_is_left_aside(folder, weights) -> None:
    weights.safetensors(folder / "model.safetensors", {"a": U8})
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xff.safetensors")).write_bytes(b"")
    assert set(read(folder).files) == {"model.safetensors"}


def test_a_manifest_knows_shapes_and_no_values() -> None:
    inventory = Inventory.from_manifest({"d2t": ["int64", [40]], "fc.weight": ["bfloat16", [8, 24]]})
    assert inventory.tensors["fc.weight"][:2] == ("bfloat16", (8, 24))
    assert (inventory.integers("d2t"), inventory.whole) == (None, True)
