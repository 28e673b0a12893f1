"""How an optimizer step is made and shared out, and which weights are kept."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file  # noqa: E402

from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import train  # noqa: E402
from eagle3_backend.stages.optimization import schedule, set_rate  # noqa: E402
from eagle3_backend.stages.training_data import parts_of  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {"epochs": 1, "batch_rows": 60, "learning_rate": 0.01, "dtype": "float32", "weight_decay": 0.0}


def trained(context):
    train.run(context)
    context.output.rename(context.output.with_name(f"{context.output.name}-{context.attempt}"))
    return context.output.with_name(f"{context.output.name}-{context.attempt}")


def weights(folder) -> dict:
    return load_file(folder / train.WEIGHTS)


def assert_close(left, right, tolerance: float) -> None:
    for name in left:
        assert torch.allclose(left[name], right[name], atol=tolerance, rtol=tolerance), name


def test_the_learning_rate_rises_and_then_follows_its_kind() -> None:
    for kind, half in (("cosine", 0.5), ("linear", 0.5), ("constant", 1.0)):
        assert [schedule(step, 110, 0.1, kind) for step in (0, 4, 10)] == pytest.approx([1 / 11, 5 / 11, 1.0])
        assert schedule(11 + 99 // 2, 110, 0.1, kind) == pytest.approx(half, abs=0.01)
    assert schedule(110, 110, 0.1, "linear") == 0.0
    assert schedule(35, 110, 0.1, "linear") < schedule(35, 110, 0.1, "cosine")


def test_adamw_moves_every_weight_and_decays_no_norm(attempt, training_inputs) -> None:
    trainer = train.Trainer(attempt("train", training_inputs, **SMALL, optimizer="adamw", train_head=True))
    (optimizer,) = trainer.optimizers.values()
    norms, matrices = optimizer.param_groups
    assert {weight.dim() for weight in norms["params"]} == {1}
    assert len(norms["params"]) + len(matrices["params"]) == len(list(trainer.drafter.parameters()))


@pytest.mark.parametrize(("optimizer", "times"), [("muon", 10), ("adamw", 1)])
def test_beside_muon_the_norms_take_ten_times_the_rate(attempt, training_inputs, optimizer, times) -> None:
    trainer = train.Trainer(attempt("train", training_inputs, **SMALL, optimizer=optimizer, train_head=True))
    set_rate(trainer.optimizers, 0.01)
    rates = {
        weight: group["lr"]
        for each in trainer.optimizers.values()
        for group in each.param_groups
        for weight in group["params"]
    }
    assert len(rates) == len(list(trainer.drafter.parameters()))
    assert all(rate == 0.01 * (times if weight.dim() == 1 else 1) for weight, rate in rates.items())


def test_parts_of_a_batch_keep_its_order_and_lose_nothing(attempt, training_inputs) -> None:
    entries = train.Trainer(attempt("train", training_inputs, **SMALL)).data.conversations
    for count in (1, 2, 5, 100):
        parts = parts_of(entries, count)
        assert len(parts) == count
        assert [entry for part in parts for entry in part] == entries


def test_a_batch_goes_to_the_device_of_its_rank_with_all_its_tensors(attempt, training_inputs) -> None:
    entries = train.Trainer(attempt("train", training_inputs, **SMALL)).data.conversations
    batch = train.batch_of(entries)
    placed = train.Ranks(device=torch.device("meta")).place(batch)
    tensors = [value for value in (*vars(placed).values(), *vars(placed.rows).values()) if hasattr(value, "device")]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert (placed.lengths, placed.rows.documents) == (batch.lengths, batch.rows.documents)


def test_a_step_in_parts_or_over_two_processes_is_the_whole_step(attempt, training_inputs, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    whole = attempt("train", training_inputs, **SMALL)
    wanted = trained(whole)
    split = trained(attempt("train", training_inputs, **SMALL, accumulation=3))
    assert_close(weights(split), weights(wanted), 2e-4)
    shared = attempt("train", training_inputs, **SMALL, processes=2)
    assert_close(weights(trained(shared)), weights(wanted), 2e-4)
    for name in ("train/loss", "train/acc_0", "eval/loss", "eval/accept_len"):
        one, two = (
            [line["values"][name] for line in each.lines("metric") if name in line["values"]]
            for each in (whole, shared)
        )
        assert two == pytest.approx(one, rel=1e-3), name
    assert (shared.run_directory / "journal-1.jsonl").exists()


def test_checkpoints_of_two_processes_are_gone_on_from_with_one(attempt, training_inputs, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    wanted = trained(attempt("train", training_inputs, **SMALL))
    stopped = attempt("train", training_inputs, **SMALL, processes=2)
    stopped.ask_to_leave()
    with pytest.raises(train.Stopped):
        train.run(stopped)
    resumed = attempt("train", training_inputs, **SMALL)
    assert_close(weights(trained(resumed)), weights(wanted), 2e-4)
    assert resumed.lines("progress")[0]["done"] == 2


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_best_or_the_last_weights_become_the_artifact_and_both_are_kept(
    attempt, training_inputs, monkeypatch, keep
) -> None:
    lengths = iter([2.0, 1.5])
    monkeypatch.setattr(train.Trainer, "evaluate", lambda self: {"eval/accept_len": next(lengths)})
    context = attempt("train", training_inputs, **{**SMALL, "epochs": 2}, keep=keep)
    train.run(context)
    best, last = (context.summary[name] for name in ("best_step", "steps"))
    assert best < last
    assert context.summary["written_step"] == {"best": best, "last": last}[keep]
    folders = {
        step: load_file(context.output / f"checkpoints/step-{step}/drafter.safetensors") for step in (best, last)
    }
    name = "midlayer.mlp.up_proj.weight"
    assert torch.equal(weights(context.output)[name], folders[context.summary["written_step"]][name])
    assert not torch.equal(folders[best][name], folders[last][name])


def test_a_long_warm_up_and_a_small_set_are_told(attempt, training_inputs) -> None:
    context = attempt("train", training_inputs, **SMALL, warmup=0.6)
    train.Trainer(context).begin()
    assert context.codes() == ["warmup_dominates", "training_data_small"]


def test_changed_parameters_are_shown_and_not_gone_on_with(attempt, training_inputs) -> None:
    context = attempt("train", training_inputs, **SMALL)
    context.ask_to_leave()
    with pytest.raises(train.Stopped):
        train.run(context)
    with pytest.raises(FindingError) as raised:
        train.run(attempt("train", training_inputs, **{**SMALL, "learning_rate": 0.02, "epochs": 2}))
    (finding,) = raised.value.findings
    assert finding.code == "resume_parameters_changed"
    assert (finding.expected, finding.actual) == (
        {"epochs": 1, "learning_rate": 0.01},
        {"epochs": 2, "learning_rate": 0.02},
    )


def test_a_training_that_was_left_with_other_parameters_is_told(attempt, training_inputs) -> None:
    context = attempt("train", training_inputs, **SMALL)
    context.ask_to_leave()
    with pytest.raises(train.Stopped):
        train.run(context)
    context.output.rename(context.output.with_name("left"))
    other = attempt("train", training_inputs, **SMALL, ttt_steps=2)
    train.Trainer(other).begin()
    (told,) = (line for line in other.lines("finding") if line["code"] == "resume_parameters_changed")
    assert (told["severity"], told["expected"], told["actual"]) == ("warning", {"ttt_steps": 3}, {"ttt_steps": 2})


def test_a_checkpoint_of_another_shape_is_refused(attempt, training_inputs) -> None:
    context = attempt("train", training_inputs, **SMALL)
    trainer = train.Trainer(context)
    trainer.begin()
    trainer._save()
    other = train.Trainer(context)
    other.drafter = train.Drafter(replace(other.drafter.config, intermediate_size=40), other.target.embedding)
    with pytest.raises(FindingError, match="checkpoint_shape_mismatch"):
        other.begin()
    assert Path(context.output / "checkpoints/step-0").exists()
