from __future__ import annotations

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages.captures import CaptureFailed, take  # noqa: E402
from eagle3_backend.stages.store import Stamp, StoreWriter, open_store, state_faults  # noqa: E402

pytestmark = pytest.mark.torch

STAMP = Stamp(
    target="/models/tiny",
    revision="r1",
    layer_ids=(2, 3),
    hidden_size=4,
    dtype="bfloat16",
    tokenizer_hash="k",
    template_hash="t",
    engine="vllm 0.32.0",
)
LARGE = 2**30


def states(tokens, seed=0):
    return torch.randn(tokens, 3, 4, generator=torch.Generator().manual_seed(seed)).bfloat16()


def code(raised):
    return raised.value.findings[0].code


@pytest.fixture
def filled(tmp_path):
    """Three rows of different lengths, each in a shard of its own."""
    writer = StoreWriter(tmp_path, STAMP, shard_bytes=1)
    for index, tokens in enumerate((5, 3, 7)):
        writer.add("train", index, list(range(tokens)), [(1, tokens)], states(tokens - 1, index))
    writer.close()
    return tmp_path


def test_what_was_written_is_read_back_row_by_row(filled):
    rows = open_store(filled, STAMP).rows("train")
    assert [row.token_ids.tolist() for row in rows] == [list(range(5)), list(range(3)), list(range(7))]
    for index, row in enumerate(rows):
        wanted = states(len(row.token_ids) - 1, index)
        assert torch.equal(row.aux[:-1], wanted[:, :2].flatten(1))
        assert torch.equal(row.last[:-1], wanted[:, 2])
        assert row.loss_mask.tolist() == [0] + [1] * (len(row.token_ids) - 1)


def test_the_last_position_of_a_row_was_never_an_input_and_has_no_states(filled):
    for row in open_store(filled).rows("train"):
        assert row.aux[-1].abs().sum() == 0
        assert row.last[-1].abs().sum() == 0


def test_rows_come_in_the_order_of_their_numbers_however_they_were_added(tmp_path):
    writer = StoreWriter(tmp_path, STAMP, LARGE)
    for index in (2, 0, 1):
        writer.add("train", index, [index, 9], [(1, 2)], states(1))
    writer.close()
    assert [row.index for row in open_store(tmp_path).rows("train")] == [0, 1, 2]


def test_a_mask_may_have_several_spans(tmp_path):
    writer = StoreWriter(tmp_path, STAMP, LARGE)
    writer.add("train", 0, list(range(8)), [(2, 4), (6, 8)], states(7))
    writer.close()
    assert open_store(tmp_path).rows("train")[0].loss_mask.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("change", [{"revision": "r2"}, {"layer_ids": (1, 3)}, {"template_hash": "u"}])
def test_a_store_made_differently_is_refused_and_the_difference_named(filled, change):
    with pytest.raises(FindingError) as raised:
        open_store(filled, replace(STAMP, **change))
    assert code(raised) == "store_stamp_mismatch"
    assert list(raised.value.findings[0].expected) == list(change)


def test_a_shard_of_another_store_is_refused(filled, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    writer = StoreWriter(other, replace(STAMP, revision="r2"), LARGE)
    writer.add("train", 0, [1, 2], [(1, 2)], states(1))
    writer.close()
    (other / "train-00000.safetensors").replace(filled / "train-00001.safetensors")
    with pytest.raises(FindingError) as raised:
        open_store(filled).rows("train")
    assert code(raised) == "store_stamp_mismatch"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "shard_missing"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "lfs_pointer"),
        (b"short", "shard_truncated"),
    ],
)
def test_a_damaged_shard_is_reported_by_name(filled, content, expected):
    path = filled / "train-00001.safetensors"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(FindingError) as raised:
        open_store(filled).rows("train")
    assert code(raised) == expected
    assert raised.value.findings[0].path == "train-00001.safetensors"


def test_no_store_is_a_finding(tmp_path):
    with pytest.raises(FindingError) as raised:
        open_store(tmp_path)
    assert code(raised) == "store_unreadable"


def test_a_writer_goes_on_behind_whole_shards_and_drops_the_rest(filled):
    path = filled / "train-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    (filled / "train-00009.safetensors.tmp").write_bytes(b"half")
    writer = StoreWriter(filled, STAMP, shard_bytes=1)
    assert writer.done("train") == {0, 1}
    assert not list(filled.glob("*.tmp"))
    writer.add("train", 2, list(range(7)), [(1, 7)], states(6, 2))
    writer.close()
    assert [row.index for row in open_store(filled).rows("train")] == [0, 1, 2]


def test_a_writer_of_another_stamp_starts_over(filled):
    writer = StoreWriter(filled, replace(STAMP, revision="r2"), LARGE)
    assert writer.done("train") == set()
    assert not list(filled.glob("*.safetensors"))


def test_a_shard_is_closed_at_its_size(tmp_path):
    row = 4 * 3 * 4 * 2
    writer = StoreWriter(tmp_path, STAMP, shard_bytes=2 * row)
    for index in range(5):
        writer.add("train", index, list(range(5)), [(1, 5)], states(4, index))
    shards = writer.close()["train"]["shards"]
    assert [len(shard["indices"]) for shard in shards] == [2, 2, 1]


def faults(found):
    return [finding.code for finding in found]


def test_good_states_have_no_fault():
    assert state_faults("x", states(4), 4) == []


def test_missing_rows_dead_layers_doubled_layers_and_bad_numbers_are_found():
    dead, doubled, bad = states(4), states(4), states(4)
    dead[:, 1] = 0
    doubled[:, 2] = doubled[:, 0]
    bad[3, 0, 2] = float("nan")
    assert faults(state_faults("x", states(4), 5)) == ["shard_seq_len_mismatch"]
    assert faults(state_faults("x", dead, 4)) == ["shard_layer_zero"]
    assert faults(state_faults("x", doubled, 4)) == ["shard_layers_equal"]
    assert faults(state_faults("x", bad, 4)) == ["shard_nonfinite"]


def test_states_of_another_shape_than_planned_do_not_enter(tmp_path):
    with pytest.raises(FindingError) as raised:
        StoreWriter(tmp_path, STAMP, LARGE).add("train", 0, [1, 2, 3], [(1, 3)], states(2)[:, :2])
    assert code(raised) == "shard_seq_len_mismatch"


def captured(directory, ids, made=None):
    from safetensors.torch import save_file

    path = directory / "a.safetensors"
    save_file({"token_ids": torch.tensor(ids), "hidden_states": states(len(ids)) if made is None else made}, path)
    (directory / "a.safetensors.lock").touch()
    return path


def test_a_checked_capture_moves_and_leaves_nothing_behind(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    take(captured(raw, [1, 2, 3]), raw, [1, 2, 3], 3, tmp_path / "final")
    assert (tmp_path / "final").exists()
    assert list(raw.iterdir()) == []


@pytest.mark.parametrize(("ids", "slots"), [([1, 2, 4], 3), ([1, 2], 3), ([1, 2, 3], 4)])
def test_a_capture_of_other_tokens_or_layers_is_thrown_away(tmp_path, ids, slots):
    with pytest.raises(CaptureFailed):
        take(captured(tmp_path, [1, 2, 3]), tmp_path, ids, slots, tmp_path / "final")
    assert list(tmp_path.iterdir()) == []


def test_a_path_outside_the_capture_directory_is_never_touched(tmp_path):
    raw, other = tmp_path / "raw", tmp_path / "other"
    raw.mkdir()
    other.mkdir()
    path = captured(other, [1, 2, 3])
    with pytest.raises(CaptureFailed):
        take(path, raw, [1, 2, 3], 3, tmp_path / "final")
    assert path.exists()


def test_the_stamp_stands_in_every_shard(filled):
    from safetensors import safe_open

    for path in filled.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            assert Stamp.from_json(json.loads(file.metadata()["stamp"])) == STAMP
