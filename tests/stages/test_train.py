from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file  # noqa: E402

from eagle3_backend.drafter.config import DrafterConfig  # noqa: E402
from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import train, vocab  # noqa: E402
from eagle3_backend.stages.context import Stopped  # noqa: E402
from eagle3_kernels.dispatch import Path  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {"epochs": 3, "batch_rows": 40, "learning_rate": 0.01, "dtype": "float32"}


@pytest.fixture
def inputs(training_inputs):
    return training_inputs


def values(context, name: str) -> list[float]:
    return [line["values"][name] for line in context.lines("metric") if name in line["values"]]


def weights(context) -> dict:
    return load_file(context.output / train.WEIGHTS)


def assert_equal_weights(left, right) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def interrupted(context, after: int, leave) -> None:
    """Run until ``after`` steps are done, then call ``leave``."""
    progress = context.journal.progress

    def watch(done, *rest, **more):
        progress(done, *rest, **more)
        if done == after:
            leave()

    context.journal.progress = watch


def test_training_lowers_the_loss_and_names_its_figures(attempt, inputs) -> None:
    context = attempt("train", inputs, **SMALL)
    trainer = train.Trainer(context)
    trainer.begin()
    before = trainer.evaluate()["eval/loss"]
    train.run(context)
    assert values(context, "eval/loss")[-1] < 0.8 * before
    assert len(values(context, "train/loss_0")) == context.summary["steps"]
    for prefix in ("train", "eval"):
        for name in ("loss_0", "acc_2", "cond_acc_1", "accept_len"):
            assert values(context, f"{prefix}/{name}")
    assert values(context, "train/cpu_seconds")[-1] > 0


def test_a_later_step_is_unrolled_in_the_share_of_steps_that_its_weight_says(attempt, inputs) -> None:
    trainer = train.Trainer(attempt("train", inputs, **SMALL, ttt_steps=3, step_decay=0.5))
    depths = [trainer._depth(step) for step in range(4000)]
    assert [sum(depth > k for depth in depths) / 4000 for k in range(3)] == pytest.approx([1.0, 0.5, 0.25], abs=0.03)


def test_the_result_is_whole_and_says_what_it_is(attempt, inputs, tiny) -> None:
    context = attempt("train", inputs, **SMALL)
    train.run(context)
    config = DrafterConfig.from_json(json.loads((context.output / train.CONFIG).read_text()))
    assert (config.aux_layers, config.draft_vocab_size, config.hidden_size) == (tiny.AUX, 44, tiny.WIDTH)
    assert all(bool(torch.isfinite(weight).all()) for weight in weights(context).values())


def test_the_layer_may_have_another_shape_than_the_targets(attempt, inputs) -> None:
    context = attempt("train", inputs, **{**SMALL, "epochs": 1}, heads=6, kv_heads=6, head_dim=4, intermediate_size=40)
    train.run(context)
    config = DrafterConfig.from_json(json.loads((context.output / train.CONFIG).read_text()))
    assert (config.heads, config.kv_heads, config.head_dim, config.intermediate_size) == (6, 6, 4, 40)
    assert weights(context)["midlayer.self_attn.k_proj.weight"].shape == (24, 32)


def test_the_drafter_may_be_of_the_kind_with_norms(attempt, inputs, tiny) -> None:
    flags = {"norm_before_fc": True, "fc_norm": True, "norm_output": True, "norm_before_residual": True}
    context = attempt("train", inputs, **{**SMALL, "epochs": 1}, **flags)
    train.run(context)
    config = DrafterConfig.from_json(json.loads((context.output / train.CONFIG).read_text()))
    assert {name: getattr(config, name) for name in flags} == flags
    assert weights(context)["input_norm.weight"].shape == (3 * tiny.WIDTH,)
    assert weights(context)["fc_norm.2.weight"].shape == (tiny.WIDTH,)


def test_a_frozen_head_stays_the_targets_own_rows(attempt, inputs) -> None:
    context = attempt("train", inputs, **SMALL)
    train.run(context)
    head = load_file(inputs["target"] / "head.safetensors")["lm_head.weight"].float()
    d2t, _ = vocab.read_maps(inputs["vocab"])
    assert torch.equal(weights(context)["lm_head.weight"], head[d2t + torch.arange(len(d2t))])


def test_a_head_that_is_trained_moves(attempt, inputs) -> None:
    context = attempt("train", inputs, **SMALL, train_head=True)
    train.run(context)
    head = load_file(inputs["target"] / "head.safetensors")["lm_head.weight"].float()
    d2t, _ = vocab.read_maps(inputs["vocab"])
    assert not torch.equal(weights(context)["lm_head.weight"], head[d2t + torch.arange(len(d2t))])


@pytest.mark.parametrize("after", [1, 5, 8])
def test_a_stop_saves_and_the_next_attempt_ends_bit_for_bit_where_an_unbroken_run_ends(attempt, inputs, after) -> None:
    whole = attempt("train", inputs, **SMALL)
    train.run(whole)
    wanted = weights(whole)
    shutil.rmtree(whole.output)
    whole.output.mkdir()
    stopped = attempt("train", inputs, **SMALL)
    interrupted(stopped, after, stopped.ask_to_leave)
    with pytest.raises(Stopped):
        train.run(stopped)
    assert [line["step"] for line in stopped.lines("checkpoint")][-1] == after
    resumed = attempt("train", inputs, **SMALL)
    train.run(resumed)
    assert resumed.lines("progress")[0]["done"] == after + 1
    assert_equal_weights(weights(resumed), wanted)


def test_a_killed_run_goes_on_from_its_newest_whole_checkpoint(attempt, inputs) -> None:
    whole = attempt("train", inputs, **SMALL)
    train.run(whole)
    wanted = weights(whole)
    shutil.rmtree(whole.output)
    whole.output.mkdir()

    class Killed(Exception):
        pass

    def kill():
        raise Killed

    killed = attempt("train", inputs, **SMALL, checkpoint_seconds=0.0)
    interrupted(killed, 7, kill)
    with pytest.raises(Killed):
        train.run(killed)
    newest = killed.output / "checkpoints/step-6"
    (killed.output / "checkpoints/step-8").mkdir()
    resumed = attempt("train", inputs, **SMALL)
    assert newest.is_dir()
    train.run(resumed)
    assert resumed.lines("progress")[0]["done"] == 7
    assert_equal_weights(weights(resumed), wanted)


def test_a_mask_without_a_token_of_the_target_is_refused_before_the_first_step(tiny, attempt, inputs, tmp_path) -> None:
    store = tiny.write_store(tmp_path / "silent", inputs["target"], mask=False)
    context = attempt("train", {**inputs, "store": store}, **SMALL)
    with pytest.raises(FindingError, match="loss_mask_all_zero"):
        train.run(context)


def test_a_mask_that_covers_prompts_is_refused_unless_that_is_accepted(
    tiny, attempt, inputs, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(tiny, "conversations", lambda seed, count: [([5, 6, 7, 8, 9], [[0, 5]])] * count)
    store = tiny.write_store(tmp_path / "covered", inputs["target"])
    with pytest.raises(FindingError, match="loss_mask_covers_prompt"):
        train.run(attempt("train", {**inputs, "store": store}, **SMALL))
    accepted = attempt("train", {**inputs, "store": store}, **SMALL, accepted=["loss_mask_covers_prompt"])
    train.run(accepted)
    assert accepted.codes() == ["loss_mask_covers_prompt", "training_data_small"]


def test_a_loss_that_is_not_a_number_stops_the_run_with_step_and_conversations(attempt, inputs, monkeypatch) -> None:
    batch_of = train.batch_of
    calls = []

    def spoiled(conversations):
        calls.append([entry.stored.index for entry in conversations])
        batch = batch_of(conversations)
        return replace(batch, last=batch.last * float("nan")) if len(calls) == 3 else batch

    monkeypatch.setattr(train, "batch_of", spoiled)
    with pytest.raises(FindingError) as raised:
        train.run(attempt("train", inputs, **SMALL))
    (finding,) = raised.value.findings
    assert (finding.code, finding.path) == ("loss_nan", "step 3")
    assert str(calls[2]) in finding.message


def test_a_loss_of_exactly_zero_stops_the_run(attempt, inputs, monkeypatch) -> None:
    draft_loss = train.draft_loss

    def silent(hidden, *arguments, **options):
        found = draft_loss(hidden, *arguments, **options)
        return found._replace(total=found.total * 0, losses=found.losses * 0)

    monkeypatch.setattr(train, "draft_loss", silent)
    with pytest.raises(FindingError, match="loss_zero_constant"):
        train.run(attempt("train", inputs, **SMALL))


def test_kernels_that_have_to_do_without_triton_are_told(attempt, inputs, monkeypatch) -> None:
    monkeypatch.setattr(train, "kernel_path", lambda device: Path("torch", "no C compiler"))
    context = attempt("train", inputs, **SMALL)
    train.Trainer(context).begin()
    assert "Kernels run as plain torch, slower and with more memory: no C compiler" in [
        line["text"] for line in context.lines("note")
    ]


def test_an_unknown_final_norm_of_the_target_is_refused(tiny, attempt, inputs) -> None:
    tiny.write_target(inputs["target"], final_norm="layer_norm")
    with pytest.raises(FindingError, match="target_unsupported"):
        train.run(attempt("train", inputs, **SMALL))


def test_before_the_first_step_the_drafter_is_the_best_linear_one(attempt, inputs) -> None:
    trainer = train.Trainer(attempt("train", inputs, **SMALL))
    trainer.begin()
    figures = trainer.evaluate()
    assert figures["eval/acc_0"] > 0.3
    assert figures["eval/loss_0"] < 0.9 * float(torch.tensor(44.0).log())


def test_two_stores_of_one_campaign_do_not_share_checkpoints(attempt, inputs) -> None:
    context = attempt("train", inputs, **SMALL)
    interrupted(context, 2, context.ask_to_leave)
    with pytest.raises(Stopped):
        train.run(context)
    other = attempt("train", inputs, **SMALL)
    other.spec["fingerprint"] = "another"
    train.run(other)
    assert other.lines("progress")[0]["done"] == 1
