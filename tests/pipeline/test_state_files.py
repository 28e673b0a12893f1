from __future__ import annotations

import struct

import pytest

from eagle3_backend.drafter.tensorfile import header_bytes
from eagle3_backend.pipeline.state_files import judge_state_files, planned

LAYERS, HIDDEN = 3, 4
NUMBERS = {"float16": (0x3C00, 0x7C00, 0x7E00), "bfloat16": (0x3F80, 0xFF80, 0x7FC0)}
"""Of each dtype: one, an infinity and a NaN, as they lie in memory."""


def write(directory, number, values, *, dtype="float16", tokens=None, scales=False, layers=LAYERS):
    """A file of states: ``values`` are bit patterns, in order."""
    rows = len(values) // (layers * HIDDEN)
    tokens = rows if tokens is None else tokens
    width = {"float32": "I", "float8_e4m3fn": "B"}.get(dtype, "H")
    tensors = {"token_ids": ("int64", (tokens,)), "hidden_states": (dtype, (rows, layers, HIDDEN))}
    data = struct.pack(f"<{tokens}q", *range(tokens)) + struct.pack(f"<{len(values)}{width}", *values)
    if scales:
        tensors["hidden_states_scales"] = ("float32", (rows, 1, 1))
        data += struct.pack(f"<{rows}f", *[1.0] * rows)
    path = directory / f"hs_{number}.safetensors"
    path.write_bytes(header_bytes(tensors, {}) + data)
    return path


def plan(samples=1, **rest):
    return {"expected_samples": samples, "layer_ids": [2, 5, 8], "num_layers_target": 8, "hidden_size": HIDDEN, **rest}


def codes(judged):
    return [finding.code for finding in judged.findings]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_infinite_values_and_nan_are_counted_with_their_layers(tmp_path, dtype):
    one, infinity, nan = NUMBERS[dtype]
    values = [one] * 2 * LAYERS * HIDDEN
    values[5], values[LAYERS * HIDDEN + 9], values[LAYERS * HIDDEN + 11] = infinity, nan, nan
    write(tmp_path, 0, values, dtype=dtype)
    judged = judge_state_files(tmp_path, plan())
    assert codes(judged) == ["shard_nonfinite"]
    assert (judged.values["nan"], judged.values["inf"], judged.values["layer_slots"]) == (2, 1, [1, 2])


def test_single_precision_is_looked_at_to_its_last_bit(tmp_path):
    values = [0x7F7FFFFF] * LAYERS * HIDDEN
    values[0], values[11] = 0x7F800001, 0xFF800000
    write(tmp_path, 0, values, dtype="float32")
    assert {name: judge_state_files(tmp_path, plan()).values[name] for name in ("nan", "inf")} == {"nan": 1, "inf": 1}


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 0xFBFF), ("bfloat16", 0x7F7F)])
def test_the_largest_numbers_are_no_fault(tmp_path, dtype, largest):
    write(tmp_path, 0, [largest] * LAYERS * HIDDEN, dtype=dtype)
    assert codes(judge_state_files(tmp_path, plan())) == []


def test_codes_of_eight_bits_need_the_reader_that_applies_their_scales(tmp_path):
    write(tmp_path, 0, [1] * LAYERS * HIDDEN, dtype="float8_e4m3fn", scales=True)
    assert codes(judge_state_files(tmp_path, plan(hidden_states_backend="file"))) == ["shard_dtype_mismatch"]
    assert codes(judge_state_files(tmp_path, plan(hidden_states_backend="fp8"))) == []


def test_codes_without_scales_suit_no_reader(tmp_path):
    write(tmp_path, 0, [1] * LAYERS * HIDDEN, dtype="float8_e4m3fn")
    assert codes(judge_state_files(tmp_path, plan(hidden_states_backend="fp8"))) == ["shard_dtype_mismatch"]


def test_whole_files_are_complete_and_all_others_are_to_redo(tmp_path):
    ones = [0x3C00] * LAYERS * HIDDEN
    write(tmp_path, 0, ones)
    write(tmp_path, 1, ones, tokens=2)
    cut = write(tmp_path, 2, ones)
    cut.write_bytes(cut.read_bytes()[:-2])
    (tmp_path / "hs_3.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    judged = judge_state_files(tmp_path, plan(5))
    assert codes(judged) == ["shard_seq_len_mismatch", "shard_truncated", "lfs_pointer", "shard_missing"]
    assert (judged.values["complete"], judged.values["to_redo"]) == ([0], [1, 2, 3, 4])


def test_another_number_of_layers_or_another_last_one_is_told(tmp_path):
    write(tmp_path, 0, [0x3C00] * 2 * HIDDEN, layers=2)
    assert codes(judge_state_files(tmp_path, plan())) == ["shard_shape_mismatch"]
    assert codes(judge_state_files(tmp_path, plan(layer_ids=[2, 7]))) == ["last_hidden_layer_offset"]


def test_a_directory_without_a_plan_is_held_against_its_first_sound_file(tmp_path):
    (tmp_path / "hs_0.safetensors").write_bytes(b"")
    write(tmp_path, 1, [0x3C00] * LAYERS * HIDDEN)
    write(tmp_path, 3, [0x3C00] * 2 * HIDDEN, layers=2)
    assert planned(tmp_path) == {"expected_samples": 4, "layers": LAYERS, "hidden_size": HIDDEN}
    assert judge_state_files(tmp_path, planned(tmp_path)).values["to_redo"] == [0, 2, 3]
