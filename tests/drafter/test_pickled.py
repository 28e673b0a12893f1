from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import pytest

from eagle3_backend.drafter import pickled
from eagle3_backend.drafter.pickled import parse_pickled
from eagle3_backend.drafter.tensorfile import Tensor
from eagle3_backend.findings import Finding, FindingError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pytorch_model.bin"


def parse(path: Path) -> dict[str, Tensor]:
    with open(path, "rb") as file:
        tensors, metadata = parse_pickled(
            str(path), path.stat().st_size, lambda offset, length: os.pread(file.fileno(), length, offset)
        )
    assert metadata == {}
    return tensors


def verdict(path: Path) -> Finding:
    with pytest.raises(FindingError) as caught:
        parse(path)
    (finding,) = caught.value.findings
    assert finding.path == str(path)
    return finding


@pytest.fixture
def good(path, weights) -> Path:
    tensor = weights.pickled_tensor
    return weights.pickled(
        path,
        {
            "fc.weight": tensor("BFloat16Storage", "0", [2, 3], [3, 1]),
            "d2t": tensor("LongStorage", "1", [3], [1], offset=1),
            "turned": tensor("FloatStorage", "2", [2, 2], [1, 2]),
            "scalar": tensor("FloatStorage", "2", [], []),
            "empty": tensor("FloatStorage", "2", [0, 5], [5, 1]),
            "one": tensor("FloatStorage", "2", [1, 2], [77, 1]),
        },
        {"0": bytes(12), "1": struct.pack("<4q", 9, 1, 2, 3), "2": bytes(16)},
    )


def test_tensors_are_listed_with_the_place_of_their_values(good) -> None:
    tensors = parse(good)
    assert {name: tensor[:2] for name, tensor in tensors.items()} == {
        "fc.weight": ("bfloat16", (2, 3)),
        "d2t": ("int64", (3,)),
        "turned": ("float32", (2, 2)),
        "scalar": ("float32", ()),
        "empty": ("float32", (0, 5)),
        "one": ("float32", (1, 2)),
    }
    start, end = tensors["d2t"][-2:]
    assert struct.unpack("<3q", good.read_bytes()[start:end]) == (1, 2, 3)


def test_a_tensor_that_is_turned_has_no_place(good) -> None:
    tensors = parse(good)
    assert tensors["turned"].start == tensors["turned"].end
    assert tensors["one"].end - tensors["one"].start == 8


def test_nothing_that_a_pickle_names_is_called(path, weights, tmp_path) -> None:
    trap = f"cos\nsystem\n({weights.text('touch ' + str(tmp_path / 'called')).decode('latin-1')}tR".encode("latin-1")
    finding = verdict(weights.pickled(path, {"fc.weight": trap}, {}))
    assert (finding.code, finding.actual) == ("pickle_unsafe", ["os.system"])
    assert not (tmp_path / "called").exists()


def test_half_a_character_in_a_name_is_told(path, weights) -> None:
    trap = b"NX\3\0\0\0\xed\xa0\x80N"
    assert verdict(weights.pickled(path, {"a": trap}, {})).code == "weights_unreadable"


def test_a_name_on_the_stack_is_no_way_around(path, weights) -> None:
    trap = weights.text("builtins") + weights.text("eval") + b"\x93)R"
    assert verdict(weights.pickled(path, {"fc.weight": trap}, {})).actual == ["builtins.eval"]


def test_the_format_before_torch_1_6_is_told(path) -> None:
    path.write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")
    assert verdict(path).code == "pickle_legacy"


def test_a_pointer_is_told(path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 100\n")
    assert verdict(path).code == "lfs_pointer"


@pytest.mark.parametrize("left", [40, 300, 600])
def test_a_cut_off_archive_is_told(good, left) -> None:
    good.write_bytes(good.read_bytes()[:left])
    assert verdict(good).code == "shard_truncated"


def test_an_archive_whose_storage_is_too_short_is_told(path, weights) -> None:
    tensors = {"d2t": weights.pickled_tensor("LongStorage", "0", [3], [1])}
    finding = verdict(weights.pickled(path, tensors, {"0": bytes(23)}))
    assert (finding.code, finding.expected, finding.actual) == ("shard_truncated", 24, 23)


@pytest.mark.parametrize(
    ("opcodes", "code"),
    [
        (b"N", "weights_missing"),
        (b"}(X\1\0\0\0aNu", "weights_missing"),
        (b"(lp0\n", "weights_missing"),
        (b"J", "weights_unreadable"),
        (b"R", "weights_unreadable"),
        (b"h\7", "weights_unreadable"),
        (b"(X\7\0\0\0storagectorch\nFloatStorage\n)X\3\0\0\0cpuK\0tQ", "weights_unreadable"),
        (b"c__builtin__\nobject\n)R", "pickle_unsafe"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "weights_unreadable"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NNNNtR", "weights_unreadable"),
    ],
)
def test_what_is_no_tensor_is_told(path, weights, opcodes, code) -> None:
    assert verdict(weights.pickled(path, {"a": opcodes}, {})).code == code


@pytest.mark.parametrize("shape", [[-1], [2**30] * 3])
def test_shapes_that_cannot_be_are_told(path, weights, shape) -> None:
    tensors = {"a": weights.pickled_tensor("FloatStorage", "0", shape, [1] * len(shape))}
    tensors["b"] = weights.pickled_tensor("FloatStorage", "0", [2**31 - 1], [1])
    assert verdict(weights.pickled(path, tensors, {"0": bytes(4)})).code in ("weights_unreadable", "shard_truncated")


def test_tuples_in_tuples_in_tuples_take_no_time(path, weights) -> None:
    """Sixty times doubled: to hash or to print such a thing would never end."""
    tower = b")" + b"".join(b"q" + bytes([level]) + b"h" + bytes([level]) + b"\x86" for level in range(60))
    for trap in (tower + b")R", b"}(" + tower + b"Nu", b"(X\7\0\0\0storage" + tower + tower + b"tQ"):
        assert verdict(weights.pickled(path, {"a": trap}, {})).code in ("weights_missing", "weights_unreadable")


def test_a_compressed_storage_has_no_place_to_read_from(path, weights) -> None:
    tensors = {"a": weights.pickled_tensor("FloatStorage", "0", [2], [1])}
    weights.pickled(path, tensors, {"0": bytes(8)}, compression=zipfile.ZIP_DEFLATED)
    assert verdict(path).code == "weights_unreadable"


def test_a_description_that_unpacks_to_more_than_any_is_not_followed(path) -> None:
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * (pickled.MAX_PICKLE + 1))
    assert path.stat().st_size < 10_000
    assert verdict(path).code == "weights_unreadable"


@pytest.mark.parametrize("entries", [{}, {"a/data.pkl": b"", "b/data.pkl": b""}, {"a/b/data.pkl": b""}])
def test_an_archive_of_something_else_is_told(path, entries) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"x": b"", **entries}.items():
            archive.writestr(name, content)
    assert verdict(path).code == "weights_unreadable"


def test_values_of_a_big_endian_machine_are_not_taken_for_ours(good) -> None:
    with zipfile.ZipFile(good, "a") as archive, pytest.warns(UserWarning):
        archive.writestr("archive/byteorder", "big")
    assert verdict(good).code == "weights_unreadable"
