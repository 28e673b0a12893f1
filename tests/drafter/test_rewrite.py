from __future__ import annotations

import errno
import os
import shutil
import struct
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagle3_backend.drafter import rewrite as module
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.drafter.rewrite import Values, rewrite, taken
from eagle3_backend.drafter.tensorfile import read_header
from eagle3_backend.findings import FindingError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def source(tmp_path: Path, weights) -> Inventory:
    """Two shards, whose tensors are of all widths."""
    folder = tmp_path / "source"
    folder.mkdir()
    weights.safetensors(
        folder / FIRST,
        {"t2d": ("bool", (5,), b"\1\0\1\0\1"), "midlayer.q": ("bfloat16", (3, 5), bytes(range(30)))},
        {"format": "pt", "made_by": "trainer"},
    )
    weights.safetensors(
        folder / SECOND,
        {"fc.weight": ("float32", (2, 3), bytes(range(100, 124))), "d2t": ("int64", (2,), struct.pack("<2q", 0, 3))},
    )
    weights.index(folder, {"t2d": FIRST, "midlayer.q": FIRST, "fc.weight": SECOND, "d2t": SECOND})
    return read_inventory(LocalFolder(folder))


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "model.safetensors"


def content(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and bytes of every tensor of a file."""
    data = path.read_bytes()
    return {name: (t.dtype, t.shape, data[t.start : t.end]) for name, t in read_header(path).tensors.items()}


def test_tensors_are_renamed_and_their_bytes_kept(source, destination) -> None:
    rewrite(source, destination, {"midlayer.q": "layers.0.q"})
    assert content(destination) == {
        "t2d": ("bool", (5,), b"\1\0\1\0\1"),
        "layers.0.q": ("bfloat16", (3, 5), bytes(range(30))),
        "fc.weight": ("float32", (2, 3), bytes(range(100, 124))),
        "d2t": ("int64", (2,), struct.pack("<2q", 0, 3)),
    }
    assert read_header(destination).metadata == {"format": "pt", "made_by": "trainer"}


def test_every_tensor_is_aligned_to_its_elements(source, destination) -> None:
    rewrite(source, destination)
    widths = {"bool": 1, "bfloat16": 2, "float32": 4, "int64": 8}
    assert all(tensor.start % widths[tensor.dtype] == 0 for tensor in read_header(destination).tensors.values())


def test_tensors_are_left_out_made_and_taken_from_elsewhere(source, destination, tmp_path, weights) -> None:
    (tmp_path / "target").mkdir()
    weights.safetensors(
        tmp_path / "target" / "model.safetensors", {"a": ("uint8", (9,)), "e": ("int16", (2,), b"abcd")}
    )
    target = read_inventory(LocalFolder(tmp_path / "target"))
    made = Values("bool", (3,), b"\1\1\0")
    rewrite(source, destination, drop=("t2d", "fc.weight", "absent"), add={"t2d": made, "embed": taken(target, "e")})
    written = content(destination)
    assert set(written) == {"t2d", "embed", "midlayer.q", "d2t"}
    assert (written["t2d"], written["embed"]) == (("bool", (3,), b"\1\1\0"), ("int16", (2,), b"abcd"))


def test_two_tensors_of_one_name_are_refused(source, destination) -> None:
    for faulty in (
        lambda: rewrite(source, destination, {"t2d": "d2t"}),
        lambda: rewrite(source, destination, add={"d2t": Values("bool", (0,), b"")}),
    ):
        with pytest.raises(FindingError, match="tensor_duplicate"):
            faulty()
    assert not list(destination.parent.iterdir())


def test_a_source_that_is_not_whole_is_refused_with_its_own_findings(source, destination) -> None:
    folder = Path(source.folder.path)
    (folder / SECOND).unlink()
    with pytest.raises(FindingError, match="shard_missing"):
        rewrite(read_inventory(LocalFolder(folder)), destination)


def test_values_that_are_elsewhere_or_scattered_cannot_be_copied(destination, tmp_path, weights) -> None:
    with pytest.raises(FindingError, match="weights_elsewhere"):
        rewrite(Inventory.from_manifest({"fc.weight": ["bfloat16", [2, 2]]}), destination)
    turned = {"fc.weight": weights.pickled_tensor("FloatStorage", "0", [2, 2], [1, 2])}
    weights.pickled(tmp_path / "pytorch_model.bin", turned, {"0": bytes(16)})
    with pytest.raises(FindingError, match="tensor_scattered"):
        rewrite(read_inventory(LocalFolder(tmp_path)), destination)


def test_pickled_weights_become_safetensors(destination, tmp_path, weights) -> None:
    tensors = {"fc.weight": weights.pickled_tensor("BFloat16Storage", "0", [2, 2], [2, 1], offset=1)}
    weights.pickled(tmp_path / "pytorch_model.bin", tensors, {"0": b"xxabcdefgh"})
    rewrite(read_inventory(LocalFolder(tmp_path)), destination)
    assert content(destination) == {"fc.weight": ("bfloat16", (2, 2), b"abcdefgh")}


def refuse_to_copy(*arguments: object) -> int:
    raise OSError(errno.EXDEV, "two file systems")


@pytest.mark.parametrize("kernel", [refuse_to_copy, lambda *arguments: 0, None])
def test_without_the_kernels_copy_the_bytes_are_the_same(source, destination, monkeypatch, kernel) -> None:
    rewrite(source, destination)
    wanted = destination.read_bytes()
    if kernel is None:
        monkeypatch.delattr(module.os, "copy_file_range", raising=False)
    else:
        monkeypatch.setattr(module.os, "copy_file_range", kernel, raising=False)
    monkeypatch.setattr(module, "LOOP_BYTES", 7)
    rewrite(source, destination)
    assert destination.read_bytes() == wanted


@pytest.mark.parametrize("moved", [0, 10])
def test_a_source_that_shrinks_leaves_nothing_behind(source, destination, moved) -> None:
    destination.write_bytes(b"of an earlier time")
    path = Path(source.folder.path) / SECOND
    os.truncate(path, path.stat().st_size - 30 + moved)
    with pytest.raises(FindingError, match="shard_truncated"):
        rewrite(source, destination)
    assert [path.name for path in destination.parent.iterdir()] == ["model.safetensors"]
    assert destination.read_bytes() == b"of an earlier time"


def test_an_error_of_the_disk_leaves_nothing_behind(source, destination, monkeypatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OSError):
        rewrite(source, destination)
    assert not list(destination.parent.iterdir())


def test_a_disk_without_room_is_told_before_anything_is_written(source, destination, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(FindingError, match="disk_space_insufficient") as caught:
        rewrite(source, destination)
    assert caught.value.findings[0].actual == 100
    assert not list(destination.parent.iterdir())


@pytest.mark.parametrize("in_kernel", [True, False])
def test_memory_does_not_grow_with_the_weights(tmp_path, destination, weights, monkeypatch, in_kernel) -> None:
    if not in_kernel:
        monkeypatch.delattr(module.os, "copy_file_range", raising=False)
    size = 64 * 1024 * 1024
    header = f'{{"w":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}'.encode()
    path = weights.raw(tmp_path / "model.safetensors", header)
    os.truncate(path, 8 + len(header) + size)
    inventory = read_inventory(LocalFolder(tmp_path))
    tracemalloc.start()
    try:
        rewrite(inventory, destination)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert destination.stat().st_size > size
    assert peak < 4 * module.LOOP_BYTES


def test_values_of_another_length_than_their_shape_are_a_mistake_of_the_caller(source, destination) -> None:
    with pytest.raises(ValueError):
        rewrite(source, destination, add={"x": Values("bool", (3,), b"")})
