from __future__ import annotations

import struct
from pathlib import Path

import pytest

from eagle3_backend.drafter.tensorfile import header_bytes, read_header, read_integers
from eagle3_backend.findings import FindingError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    header = header_bytes({"d2t": ("int64", (3,)), "t2d": ("bool", (5,)), "w": ("bfloat16", (2, 2))}, {"format": "pt"})
    path.write_bytes(header + struct.pack("<3q", 0, 1, 2) + bytes([1, 0, 1, 0, 1]) + bytes(8))
    return path


def test_a_header_tells_dtype_shape_and_metadata(file: Path) -> None:
    header = read_header(file)
    assert {name: (entry.dtype, entry.shape) for name, entry in header.tensors.items()} == {
        "d2t": ("int64", (3,)),
        "t2d": ("bool", (5,)),
        "w": ("bfloat16", (2, 2)),
    }
    assert header.metadata == {"format": "pt"}


def test_integer_tensors_are_read_without_a_library(file: Path) -> None:
    header = read_header(file)
    assert read_integers(header, "d2t") == [0, 1, 2]
    assert read_integers(header, "t2d") == [1, 0, 1, 0, 1]


def test_a_cut_off_file_is_told(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FindingError, match="shard_truncated"):
        read_header(file)


def test_a_pointer_in_place_of_weights_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 100\n")
    with pytest.raises(FindingError, match="lfs_pointer"):
        read_header(path)


@pytest.mark.parametrize("content", [b"", b"abc", struct.pack("<Q", 1 << 60) + b"{}"])
def test_a_header_longer_than_the_file_is_never_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(FindingError, match="shard_truncated"):
        read_header(path)


@pytest.mark.parametrize("text", [b"not json", b'{"w":{"dtype":"BF16","shape":[3],"data_offsets":[0,8]}}', b"[]"])
def test_a_header_that_makes_no_sense_is_told(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(FindingError, match="not_safetensors"):
        read_header(path)
