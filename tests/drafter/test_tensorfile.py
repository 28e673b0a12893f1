from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from eagle3_backend.drafter import tensorfile
from eagle3_backend.drafter.tensorfile import Tensor, header_bytes, read_header, read_integers
from eagle3_backend.findings import Finding, FindingError

PAIR = {"d2t": ("int64", (3,), struct.pack("<3q", 0, -1, 2)), "t2d": ("bool", (5,), b"\1\0\1\0\1")}


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def verdict(path: Path) -> Finding:
    """The one finding with which a header is refused."""
    with pytest.raises(FindingError) as caught:
        read_header(path)
    (finding,) = caught.value.findings
    return finding


def test_a_header_tells_dtype_shape_place_and_metadata(path, weights) -> None:
    weights.safetensors(path, {**PAIR, "w": ("bfloat16", (2, 2))}, {"format": "pt"})
    header = read_header(path)
    base = path.stat().st_size - 37
    assert header.tensors == {
        "d2t": Tensor("int64", (3,), "model.safetensors", base, base + 24),
        "t2d": Tensor("bool", (5,), "model.safetensors", base + 24, base + 29),
        "w": Tensor("bfloat16", (2, 2), "model.safetensors", base + 29, base + 37),
    }
    assert header.metadata == {"format": "pt"}


@pytest.mark.parametrize("dtype", sorted(tensorfile.BITS))
def test_every_dtype_of_the_format_is_written_and_read_by_torchs_name(path, weights, dtype) -> None:
    weights.safetensors(path, {"x": (dtype, (3, 8))})
    assert read_header(path).tensors["x"][:2] == (dtype, (3, 8))


def test_integer_tensors_are_read_without_a_library(path, weights) -> None:
    header = read_header(weights.safetensors(path, PAIR))
    assert read_integers(header, "d2t") == [0, -1, 2]
    assert read_integers(header, "t2d") == [1, 0, 1, 0, 1]


def test_a_tensor_of_another_kind_is_no_list_of_integers(path, weights) -> None:
    with pytest.raises(KeyError):
        read_integers(read_header(weights.safetensors(path, {"w": ("float32", (2,))})), "w")


def test_a_map_that_no_vocabulary_needs_is_not_read(path, weights, monkeypatch) -> None:
    monkeypatch.setattr(tensorfile, "MAX_INTEGERS", 2)
    with pytest.raises(FindingError, match="map_oversized"):
        read_integers(read_header(weights.safetensors(path, PAIR)), "d2t")


def test_a_file_that_shrinks_after_its_header_was_read_is_told(path, weights) -> None:
    header = read_header(weights.safetensors(path, PAIR))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FindingError, match="shard_truncated"):
        read_integers(header, "d2t")


@pytest.mark.parametrize("missing", [1, 28, 29])
def test_a_cut_off_file_is_told_with_both_sizes(path, weights, missing) -> None:
    whole = weights.safetensors(path, PAIR).stat().st_size
    path.write_bytes(path.read_bytes()[:-missing])
    finding = verdict(path)
    assert (finding.code, finding.expected, finding.actual) == ("shard_truncated", whole, whole - missing)
    assert finding.path == str(path)


def test_bytes_behind_the_last_tensor_are_told(path, weights) -> None:
    path.write_bytes(weights.safetensors(path, PAIR).read_bytes() + b"\0")
    assert verdict(path).code == "shard_oversized"


def test_a_pointer_in_place_of_weights_is_told(path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 100\n")
    assert verdict(path).code == "lfs_pointer"


@pytest.mark.parametrize("content", [b"", b"abc", bytes(7), struct.pack("<Q", 1 << 60) + b"{}", b"\xff" * 8])
def test_a_header_longer_than_the_file_is_never_read(path, content) -> None:
    path.write_bytes(content)
    assert verdict(path).code == "shard_truncated"


def test_a_header_longer_than_any_that_is_known_is_not_read(path) -> None:
    length = tensorfile.MAX_HEADER + 1
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", length))
        file.truncate(8 + length)
    finding = verdict(path)
    assert (finding.code, finding.actual) == ("header_oversized", length)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"not json",
        b"[]",
        b"{",
        b'{"w":3}',
        b'{"w":[1,2,3]}',
        b'{"w":{"shape":[],"data_offsets":[0,0]}}',
        b'{"w":{"dtype":"BF16","shape":[3],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"Q4","shape":[8],"data_offsets":[0,4]}}',
        b'{"w":{"dtype":["U8"],"shape":[8],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}',
        b'{"w":{"dtype":"U8","shape":[-8],"data_offsets":[8,0]}}',
        b'{"w":{"dtype":"U8","shape":"8","data_offsets":[0,8]}}',
        b'{"w":{"dtype":"U8","shape":[8],"data_offsets":[-4,4]}}',
        b'{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}}',
        b'{"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}',
        b'{"w":{"dtype":"U8","shape":[NaN],"data_offsets":[0,8]}}',
        b'{"__metadata__":{"format":1}}',
        b'{"__metadata__":["format"]}',
        b'\xef\xbb\xbf{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        b'{"w\xff":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        b'{"\\ud800":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        b'{"w":' + b"[" * 5000,
        b'{"w":[' + b"[]," * 5000 + b"[]]}",
        b'{"w":{"dtype":"U8","shape":[' + b"0," * 99 + b'0],"data_offsets":[0,0]}}',
        b'{"w":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}',
    ],
)
def test_a_header_that_makes_no_sense_is_told(path, weights, header) -> None:
    assert verdict(weights.raw(path, header, bytes(8))).code == "not_safetensors"


def test_a_name_that_occurs_twice_is_told(path, weights) -> None:
    one = json.dumps(entry("U8", [4], 0, 4))
    other = json.dumps(entry("U8", [4], 4, 8))
    finding = verdict(weights.raw(path, f'{{"fc.weight":{one},"fc.weight":{other}}}'.encode(), bytes(8)))
    assert (finding.code, finding.path) == ("tensor_duplicate", "fc.weight")


@pytest.mark.parametrize(
    ("places", "lying"), [([(0, 8), (4, 12)], "b"), ([(0, 8), (0, 8)], "b"), ([(8, 16), (17, 25)], "a")]
)
def test_offsets_that_overlap_or_leave_gaps_are_told(path, weights, places, lying) -> None:
    header = {name: entry("U8", [end - start], start, end) for name, (start, end) in zip("ab", places, strict=True)}
    finding = verdict(weights.raw(path, json.dumps(header).encode(), bytes(25)))
    assert (finding.code, finding.path) == ("offsets_invalid", lying)


def test_tensors_may_stand_in_any_order_and_be_empty(path, weights) -> None:
    header = {"b": entry("U8", [4], 4, 8), "none": entry("F32", [0, 7], 4, 4), "a": entry("F32", [], 0, 4)}
    weights.raw(path, json.dumps(header).encode(), bytes(8))
    assert set(read_header(path).tensors) == {"a", "b", "none"}


def test_a_header_may_have_spaces_around_it(path, weights) -> None:
    header = json.dumps({"a": entry("U8", [1], 0, 1)}, indent=1)
    assert set(read_header(weights.raw(path, f"\n {header} \n".encode(), b"x")).tensors) == {"a"}


def test_metadata_may_be_null(path, weights) -> None:
    header = json.dumps({"__metadata__": None, "a": entry("U8", [1], 0, 1)})
    assert read_header(weights.raw(path, header.encode(), b"x")).metadata == {}


def test_a_written_header_keeps_what_follows_it_aligned() -> None:
    for length in range(1, 12):
        assert len(header_bytes({"x" * length: ("uint8", (1,))}, {})) % 8 == 0
