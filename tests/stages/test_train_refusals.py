"""What a training refuses before its first step: inputs that do not belong together, and too little memory."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import ranks, train, training_memory, unrolled, vocab  # noqa: E402
from eagle3_backend.stages.training_rows import batch_of  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {"epochs": 1, "batch_rows": 200, "learning_rate": 0.01, "dtype": "float32"}


def refused(attempt, inputs, **parameters):
    with pytest.raises(FindingError) as raised:
        train.Trainer(attempt("train", inputs, **SMALL, **parameters)).begin()
    return list(raised.value.findings)


def test_states_of_another_target_are_refused(tiny, attempt, training_inputs, tmp_path) -> None:
    other = tiny.write_target(tmp_path / "other", model="org/other", tokenizer_hash="another", revision="r2")
    found = refused(attempt, {**training_inputs, "target": other})
    assert {(each.code, each.path) for each in found} == {
        ("store_stamp_mismatch", name) for name in ("target", "tokenizer_hash", "revision")
    }


def test_a_vocabulary_of_another_target_is_refused(attempt, training_inputs) -> None:
    d2t, t2d = vocab.read_maps(training_inputs["vocab"])
    save_file({"d2t": d2t, "t2d": torch.cat([t2d, t2d])}, training_inputs["vocab"] / vocab.FILE)
    assert [each.code for each in refused(attempt, training_inputs)] == ["vocab_map_stale"]


def test_a_vocabulary_of_other_conversations_is_refused(tiny, attempt, training_inputs, tmp_path, monkeypatch) -> None:
    read = {"target": training_inputs["target"], "conversations": tmp_path / "conversations"}
    chosen = attempt("vocab", read, draft_vocab_size=8)
    vocab.run(chosen)
    monkeypatch.setattr(tiny, "conversations", lambda seed, count: [([1, 3, 2, 2, 2, 2], [[2, 6]])] * count)
    store = tiny.write_store(tmp_path / "others", training_inputs["target"])
    (finding,) = refused(attempt, {**training_inputs, "store": store, "vocab": chosen.output})
    assert (finding.code, finding.actual) == ("vocab_map_stale", 1.0)


def test_a_damaged_map_is_refused(attempt, training_inputs) -> None:
    path = training_inputs["vocab"] / vocab.FILE
    maps = load_file(path)
    save_file({**maps, "d2t": maps["d2t"] + 30}, path)
    assert "vocab_map_inconsistent" in [each.code for each in refused(attempt, training_inputs)]


def test_too_little_memory_names_the_number_of_parts_that_fits(attempt, training_inputs, monkeypatch) -> None:
    trainer = train.Trainer(attempt("train", training_inputs, **SMALL))
    arguments = (trainer.drafter, trainer.target, trainer.data, trainer.parameters, trainer.ranks)
    fixed = training_memory.state_bytes(trainer.drafter, trainer.target, trainer.parameters, trainer.ranks)
    largest = training_memory.largest_part(trainer.data, 3)
    enough = fixed + training_memory.activation_bytes(trainer.drafter.config, *largest, trainer.parameters)
    monkeypatch.setattr(training_memory, "available_bytes", lambda: enough)
    (finding,) = training_memory.memory_faults(*arguments)
    assert finding.fix == "Set train.accumulation = 3."
    (same,) = refused(attempt, training_inputs)
    assert same.code == "training_memory_insufficient"
    assert not list(
        training_memory.memory_faults(*arguments[:3], replace(trainer.parameters, accumulation=3), trainer.ranks)
    )
    monkeypatch.setattr(training_memory, "available_bytes", lambda: fixed)
    (finding,) = training_memory.memory_faults(*arguments)
    assert "does not fit by itself" in finding.fix


@pytest.mark.parametrize("size", [30, 512])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_forecast_is_about_what_loss_and_gradients_hold(
    attempt, training_inputs, monkeypatch, held_bytes, dtype, size
) -> None:
    for module in (training_memory, unrolled):
        monkeypatch.setattr(module, "PART_ROWS", size)
    trainer = train.Trainer(attempt("train", training_inputs, **{**SMALL, "dtype": dtype}))
    trainer.begin()
    batch = batch_of(trainer.data.conversations)
    rows, used, longest = len(batch.rows.positions), len(batch.rows.used), max(batch.rows.documents)
    peak = held_bytes(lambda: trainer.forward(batch, torch.ones(3), torch.ones(used)))
    gradients = sum(weight.grad.nbytes for weight in trainer.drafter.parameters() if weight.grad is not None)
    actual = peak - gradients
    forecast = training_memory.activation_bytes(trainer.drafter.config, rows, used, longest, trainer.parameters)
    assert 0.9 * actual < forecast < 1.5 * actual


def test_a_rank_that_dies_ends_the_training_with_a_finding(attempt, training_inputs, monkeypatch) -> None:
    context = attempt("train", training_inputs, **SMALL, processes=2)
    left = []
    monkeypatch.setattr(ranks, "GRACE", 0.1)
    monkeypatch.setattr(ranks.os, "_exit", left.append)
    monkeypatch.setattr(ranks.sys, "executable", "/bin/false")
    others = ranks.Others(context, 2)
    others.watcher.join(10)
    others.end(seconds=1.0)
    assert left == [1]
    assert context.codes() == ["rank_failed"]
    assert sys.executable == "/bin/false"
