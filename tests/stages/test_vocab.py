from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from eagle3_backend.drafter.checks.vocabulary import map_findings  # noqa: E402
from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import vocab  # noqa: E402

pytestmark = pytest.mark.torch


def test_the_most_written_tokens_are_kept_in_ascending_order_ties_by_id() -> None:
    assert vocab.choose(Counter({9: 5, 3: 7, 8: 2, 4: 2}), 3, 20, set()) == [3, 4, 9]


def test_tokens_of_the_template_are_kept_however_rare() -> None:
    assert vocab.choose(Counter({9: 5, 3: 7}), 2, 20, {17}) == [3, 17]


def test_a_corpus_with_few_distinct_tokens_is_filled_up_with_the_lowest_ids() -> None:
    assert vocab.choose(Counter({9: 5}), 4, 20, set()) == [0, 1, 2, 9]


@pytest.mark.parametrize("kept", [[0, 1, 5], [1, 5, 19], list(range(20))])
def test_both_maps_say_the_same(kept: list[int]) -> None:
    d2t, t2d = vocab.maps(kept, 20)
    assert (torch.arange(len(kept)) + d2t).tolist() == kept
    assert map_findings(d2t.tolist(), t2d.tolist(), 20) == []


def test_the_stage_keeps_what_the_target_wrote_and_tells_held_out_coverage(tiny, attempt, tmp_path) -> None:
    target = tiny.write_target(tmp_path / "target")
    data = tiny.write_conversations(tmp_path / "conversations")
    context = attempt("vocab", {"target": target, "conversations": data}, draft_vocab_size=44)
    vocab.run(context)
    d2t, t2d = vocab.read_maps(context.output)
    counted = vocab.count_supervised(data / "train.jsonl")
    assert set(t2d.nonzero().squeeze(-1).tolist()) >= set(counted) | {2, 47}
    assert d2t.dtype == torch.int64
    assert context.summary["coverage"] == {"train": 1.0, "holdout": 1.0}
    assert context.summary["distinct_tokens"] == len(counted)


def test_markers_that_the_template_never_writes_are_not_forced_in(tiny, tmp_path) -> None:
    assert vocab.template_tokens(tiny.write_target(tmp_path / "target")) == {2, 47}


def test_a_draft_vocabulary_larger_than_the_targets_is_the_targets(tiny, attempt, tmp_path) -> None:
    inputs = {"target": tiny.write_target(tmp_path / "t"), "conversations": tiny.write_conversations(tmp_path / "c")}
    context = attempt("vocab", inputs, draft_vocab_size=10**6)
    vocab.run(context)
    assert len(vocab.read_maps(context.output)[0]) == tiny.VOCABULARY


def test_conversations_without_a_token_of_the_target_are_refused(tiny, attempt, tmp_path) -> None:
    data = tmp_path / "conversations"
    data.mkdir()
    (data / "train.jsonl").write_text('{"input_ids": [1, 2, 3], "loss_mask": []}\n')
    context = attempt("vocab", {"target": tiny.write_target(tmp_path / "target"), "conversations": data})
    with pytest.raises(FindingError, match="loss_mask_all_zero"):
        vocab.run(context)
