"""Weights side by side: names of both layouts, shapes, dtypes and the vocabulary map's ids."""

from __future__ import annotations

import struct

import pytest

from eagle3_backend.drafter.diff import Kind
from eagle3_backend.drafter.diff_tensors import compare_weights
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.drafter.tensorfile import header_bytes

MANIFEST = {
    "fc.weight": ["bfloat16", [64, 192]],
    "midlayer.self_attn.q_proj.weight": ["bfloat16", [64, 128]],
    "lm_head.weight": ["bfloat16", [256, 64]],
    "norm.weight": ["bfloat16", [64]],
}


def compare(**changes):
    other = {**MANIFEST, **{name.replace("__", "."): value for name, value in changes.items()}}
    kept = {name: value for name, value in other.items() if value is not None}
    rows = compare_weights(Inventory.from_manifest(MANIFEST), Inventory.from_manifest(kept))
    return {row.field: row for row in rows if row.kind is not Kind.SAME}


def test_the_same_weights_differ_in_nothing():
    assert compare() == {}


def test_names_of_the_other_layout_are_a_spelling():
    found = compare(
        **{"midlayer.self_attn.q_proj.weight": None, "layers.0.self_attn.q_proj.weight": ["bfloat16", [64, 128]]}
    )
    (row,) = found.values()
    assert (row.kind, row.left.paths, row.right.paths) == (
        Kind.SPELLING, ("midlayer.self_attn.q_proj.weight",), ("layers.0.self_attn.q_proj.weight",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "kind", "engines"),
    [
        ("fc.weight", ["bfloat16", [64, 256]], Kind.BREAKING, ["vllm", "sglang"]),
        ("fc.weight", ["float32", [64, 192]], Kind.HARMLESS, []),
        ("fc.weight", ["float8_e4m3fn", [64, 192]], Kind.BREAKING, ["vllm", "sglang"]),
        ("lm_head.weight", None, Kind.BREAKING, ["vllm", "sglang"]),
        ("t2d", ["bool", [512]], Kind.HARMLESS, []),
        ("embed_tokens.weight", ["bfloat16", [512, 64]], Kind.BREAKING, ["vllm"]),
    ],
)
def test_what_differs_says_what_it_breaks(name, value, kind, engines):
    found = compare(**{name: value})[name]
    assert (found.kind, [effect.engine for effect in found.effects]) == (kind, engines)


class TestVocabularyMap:
    def inventory(self, folder, ids):
        folder.mkdir()
        data = struct.pack(f"<{len(ids)}q", *ids)
        (folder / "model.safetensors").write_bytes(header_bytes({"d2t": ("int64", (len(ids),))}, {}) + data)
        return read_inventory(LocalFolder(folder))

    def test_other_ids_draft_other_tokens(self, tmp_path):
        left, right = self.inventory(tmp_path / "a", [0, 0, 5]), self.inventory(tmp_path / "b", [0, 1, 5])
        (row,) = compare_weights(left, right)
        assert row.kind is Kind.BREAKING and "the ids differ" in row.words
        (row,) = compare_weights(left, left)
        assert row.kind is Kind.SAME

    def test_ids_that_are_not_at_hand_are_said_to_be_not_compared(self):
        inventory = Inventory.from_manifest({"d2t": ["int64", [3]]})
        (row,) = compare_weights(inventory, inventory)
        assert "not compared" in row.words
