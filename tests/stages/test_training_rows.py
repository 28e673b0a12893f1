from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from eagle3_backend.stages.store import open_store  # noqa: E402
from eagle3_backend.stages.training_rows import batch_of, conversation, grouped, order_of, used_rows  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("seed", range(20))
def test_a_row_is_used_exactly_if_start_fed_and_predicted_tokens_are_the_targets_own(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(30, generator=generator) < 0.75
    used, valid = used_rows(mask.to(torch.uint8), steps=4)
    for step in range(4):
        wanted = [j for j in range(30) if j + 2 + step < 30 and bool(mask[j + 1 : j + 3 + step].all())]
        assert used[valid[step]].tolist() == wanted


def test_an_answer_from_a_to_b_gives_rows_from_a_minus_1_to_b_minus_2() -> None:
    mask = torch.zeros(12, dtype=torch.uint8)
    mask[4:10] = 1
    used, valid = used_rows(mask, steps=3)
    assert used.tolist() == [3, 4, 5, 6, 7]
    assert valid.sum(1).tolist() == [5, 4, 3]


def test_an_answer_of_one_token_gives_no_row() -> None:
    mask = torch.zeros(6, dtype=torch.uint8)
    mask[3] = 1
    assert len(used_rows(mask, steps=2)[0]) == 0


def test_a_batch_names_tokens_teachers_and_hidden_states_of_every_row(tiny, tmp_path) -> None:
    store = open_store(tiny.write_store(tmp_path / "store", tmp_path))
    entries = [conversation(row, 3) for row in store.rows("train")[10:14]]
    batch = batch_of(entries)
    start = 0
    for document, entry in enumerate(entries):
        row = entry.stored
        for position, j in enumerate(entry.used.tolist()):
            place = batch.rows.used[start + position]
            assert torch.equal(batch.rows.aux[place], row.aux[j])
            assert int(batch.rows.positions[place]) == j
            assert int(place) == sum(batch.rows.documents[:document]) + j
            assert torch.equal(batch.last[start + position], row.last[j + 1])
            for step in range(3):
                if bool(batch.valid[step, start + position]):
                    assert int(batch.rows.tokens[step, start + position]) == int(row.token_ids[j + 1 + step])
                    assert torch.equal(batch.last[start + position + step], row.last[j + 1 + step])
        start += len(entry.used)
    assert start == sum(batch.lengths) == len(batch.rows.used)


def test_the_order_of_an_epoch_follows_from_seed_and_epoch_alone() -> None:
    assert order_of(7, 2, 50) == order_of(7, 2, 50)
    assert order_of(7, 2, 50) != order_of(7, 3, 50)
    assert sorted(order_of(7, 2, 50)) == list(range(50))


def test_batches_hold_whole_conversations_up_to_the_wanted_rows() -> None:
    assert list(grouped([2, 0, 1, 3], [5, 1, 9, 2], rows=10)) == [[2, 0], [1, 3]]
