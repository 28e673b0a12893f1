"""Any damage to the files of a small drafter: it is listed or it is found, and nothing else is raised."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inspection import CONFIG, Inspection, inspect

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = "pytorch_model.bin"

DAMAGE = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Files:
    """A directory that is written anew for every damage, in memory as far as the test goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole = {path.name: path.read_bytes() for path in folder.iterdir()}

    def with_content(self, name: str, content: bytes) -> Inspection:
        for other, data in self.whole.items():
            (self.folder / other).write_bytes(content if other == name else data)
        found = inspect(LocalFolder(self.folder))
        # It has to travel and to be printed, too.
        Inspection.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
        return found


@pytest.fixture
def sharded(tmp_path, weights) -> Files:
    weights.safetensors(tmp_path / FIRST, {"fc.weight": ("bfloat16", (2, 6)), "norm.weight": ("float32", (2,))})
    weights.safetensors(tmp_path / SECOND, {"d2t": ("int64", (3,), struct.pack("<3q", 0, 1, 1)), "t2d": ("bool", (8,))})
    weights.index(tmp_path, {"fc.weight": FIRST, "norm.weight": FIRST, "d2t": SECOND, "t2d": SECOND})
    (tmp_path / CONFIG).write_text('{"hidden_size": 2, "eagle_config": {"use_aux_hidden_state": true}}')
    return Files(tmp_path)


@pytest.fixture
def archived(tmp_path, weights) -> Files:
    tensors = {
        "fc.weight": weights.pickled_tensor("BFloat16Storage", "0", [2, 6], [6, 1]),
        "d2t": weights.pickled_tensor("LongStorage", "1", [3], [1]),
    }
    weights.pickled(tmp_path / PICKLED, tensors, {"0": bytes(24), "1": bytes(24)})
    return Files(tmp_path)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes of a file with some exchanged, put in, taken out or cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        piece = draw(
            st.binary(max_size=8) | st.sampled_from([b"[", b"{", b"}", b'"', b"NaN", b"-1", b"9" * 20, b"null"])
        )
        kind = draw(st.sampled_from(["exchange", "insert", "remove", "cut"]))
        if kind == "exchange":
            data[place : place + len(piece)] = piece
        elif kind == "insert":
            data[place:place] = piece
        elif kind == "remove":
            del data[place : place + draw(st.integers(1, 64))]
        else:
            del data[place:]
    return bytes(data)


@pytest.mark.parametrize("name", [FIRST, SECOND, INDEX, CONFIG])
@DAMAGE
@given(data=st.data())
def test_damage_to_a_sharded_drafter_is_found_or_does_not_matter(sharded, name, data) -> None:
    found = sharded.with_content(name, data.draw(damaged(sharded.whole[name])))
    complete = found.inventory is not None and len(found.inventory.tensors) == 4 and found.config is not None
    assert complete or found.findings


@DAMAGE
@given(data=st.data())
def test_damage_to_an_archive_is_found_or_does_not_matter(archived, data) -> None:
    found = archived.with_content(PICKLED, data.draw(damaged(archived.whole[PICKLED])))
    assert found.inventory is not None
    assert found.inventory.tensors or not found.inventory.whole


@settings(DAMAGE, max_examples=50)
@given(content=st.binary(max_size=200))
def test_any_bytes_in_place_of_any_file_are_found(sharded, content) -> None:
    for name in sharded.whole:
        assert sharded.with_content(name, content).findings


@pytest.mark.parametrize(
    "header",
    [
        b'{"w":[' + b"[]," * 500_000,
        b'{"w":{' + b'"a":1,' * 250_000,
        b'{"w":{"dtype":"U8","shape":[' + b"1," * 500_000,
        b'"' + b"x" * 1250_000,
    ],
    ids=["brackets", "members", "numbers", "text"],
)
def test_a_header_of_rubbish_costs_a_small_multiple_of_its_length(tmp_path, weights, header) -> None:
    weights.raw(tmp_path / "model.safetensors", header)
    tracemalloc.start()
    try:
        found = inspect(LocalFolder(tmp_path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [finding.code for finding in found.findings] == ["file_missing", "not_safetensors"]
    assert peak < 16 * len(header)
