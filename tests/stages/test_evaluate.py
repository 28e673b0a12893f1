from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import evaluate, train, vocab  # noqa: E402
from eagle3_backend.stages.acceptance import Walk, walk  # noqa: E402

pytestmark = pytest.mark.torch


def table(*steps: str) -> torch.Tensor:
    return torch.tensor([[letter == "x" for letter in step] for step in steps])


VALID = table("xxxxxx", "xxxxx.", "xxxx..")
USED = torch.arange(3, 9)


def test_a_server_advances_by_the_accepted_drafts_and_one() -> None:
    right = table("x.xx..", "x.x...", "......") & VALID
    # Row 0 accepts two, so row 3 is next; it accepts one, row 5 none.
    assert walk(right, VALID, USED) == Walk(steps=3, accepted=(2, 1, 0))


def test_a_step_that_the_end_of_the_answer_cuts_short_is_left_out() -> None:
    assert walk(VALID, VALID, USED) == Walk(steps=1, accepted=(1, 1, 1))


def test_each_answer_of_a_conversation_is_walked_on_its_own() -> None:
    right, valid = table(".xx.", "...."), table("xxxx", "x.x.")
    # The first answer ends in a step that is left out, and the second starts afresh.
    assert walk(right, valid, torch.tensor([2, 3, 9, 10])) == Walk(steps=2, accepted=(1, 0))


def test_depth_one_separates_answers_too() -> None:
    assert walk(table("x.x"), table("xxx"), torch.tensor([2, 7, 8])) == Walk(steps=3, accepted=(2,))


@pytest.fixture
def inputs(tiny, attempt, tmp_path):
    target = tiny.write_target(tmp_path / "target")
    data = tiny.write_conversations(tmp_path / "conversations")
    chosen = attempt("vocab", {"target": target, "conversations": data}, draft_vocab_size=44)
    vocab.run(chosen)
    shared = {"target": target, "store": tiny.write_store(tmp_path / "store", target), "vocab": chosen.output}
    trained = attempt("train", shared, epochs=4, batch_rows=40, learning_rate=0.01, dtype="float32")
    train.run(trained)
    return {**shared, "checkpoint": trained.output}


def test_the_report_tells_length_interval_and_acceptance_by_position(attempt, inputs) -> None:
    context = attempt("evaluate", inputs, depth=3, bootstrap=200)
    evaluate.run(context)
    report = json.loads((context.output / evaluate.REPORT).read_text())
    length = report["acceptance_length"]
    assert 1.0 < length["low"] <= length["mean"] <= length["high"] <= 4.0
    assert length["mean"] == pytest.approx(1 + sum(report["acceptance_by_position"]), abs=2e-3)
    assert report["acceptance_by_position"] == sorted(report["acceptance_by_position"], reverse=True)
    assert report["length_by_depth"][-1] == pytest.approx(length["mean"], abs=1e-3)
    assert 0.9 < report["teacher_mass"] <= 1.0


def test_a_spoiled_drafter_scores_near_one(attempt, inputs) -> None:
    path = inputs["checkpoint"] / train.WEIGHTS
    weights = load_file(path)
    save_file({**weights, "lm_head.weight": -weights["lm_head.weight"]}, path)
    context = attempt("evaluate", inputs, depth=3, bootstrap=200)
    evaluate.run(context)
    assert json.loads((context.output / evaluate.REPORT).read_text())["acceptance_length"]["mean"] < 1.2


def test_a_store_without_held_out_conversations_is_refused(tiny, attempt, inputs, tmp_path) -> None:
    store = tiny.write_store(tmp_path / "bare", inputs["target"], holdout=0)
    with pytest.raises(FindingError, match="holdout_empty"):
        evaluate.run(attempt("evaluate", {**inputs, "store": store}))
