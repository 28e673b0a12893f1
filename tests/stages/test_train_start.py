"""Training that goes on from a drafter that is there already, flat or nested."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.findings import FindingError, Severity  # noqa: E402
from eagle3_backend.stages import export, train, vocab  # noqa: E402
from eagle3_backend.stages.drafter_model import load_drafter  # noqa: E402
from eagle3_backend.stages.reference_drafter import ReferenceDrafter  # noqa: E402
from eagle3_backend.stages.starting_drafter import go_on_from  # noqa: E402
from eagle3_backend.stages.training_rows import batch_of  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {"epochs": 1, "batch_rows": 60, "learning_rate": 0.01, "dtype": "float32"}


@pytest.fixture
def earlier(attempt, training_inputs):
    """A drafter that was trained and exported before, and its figures."""
    trained = attempt("train", training_inputs, **SMALL, train_head=True)
    train.run(trained)
    figures = [line["values"] for line in trained.lines("metric") if "eval/loss" in line["values"]][-1]
    written = attempt("export", {**training_inputs, "checkpoint": trained.output}, dtype="float32")
    export.write_trained(written)
    trained.output.rename(trained.output.with_name("earlier"))
    return written.output, figures


def begun(attempt, inputs, directory, **parameters):
    trainer = train.Trainer(attempt("train", inputs, **SMALL, start_from=str(directory), **parameters))
    trainer.begin()
    return trainer


def refused(attempt, inputs, directory, **parameters):
    with pytest.raises(FindingError) as raised:
        begun(attempt, inputs, directory, **parameters)
    return [(finding.code, finding.path) for finding in raised.value.findings]


def test_a_drafter_of_either_layout_is_where_it_was_before_the_first_step(attempt, training_inputs, earlier) -> None:
    directory, figures = earlier
    for layout in ("flat", "nested"):
        trainer = begun(attempt, training_inputs, directory / layout)
        assert trainer.evaluate()["eval/loss"] == pytest.approx(figures["eval/loss"], rel=1e-4)
        head = load_file(directory / layout / "model.safetensors")["lm_head.weight"]
        assert torch.equal(trainer.drafter.lm_head.weight, head)
        assert not trainer.drafter.lm_head.weight.requires_grad


def test_before_the_first_step_the_logits_are_those_of_the_drafter_to_the_last_bit(
    attempt, training_inputs, earlier
) -> None:
    trainer = begun(attempt, training_inputs, earlier[0] / "nested")
    tensors = {name: tensor.float() for name, tensor in trainer.start.tensors.items()}
    given = load_drafter(trainer.start.config, trainer.target.embedding, tensors)
    rows = batch_of(trainer.data.conversations).rows
    assert bool((trainer.drafter.aux_scale != 1).any())
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32), torch.no_grad():
            ours, theirs = (model.lm_head(model(rows)) for model in (trainer.drafter, given))
        assert torch.equal(ours, theirs)
    served = trainer.drafter.served_weights()
    assert all(torch.equal(served[name], tensor) for name, tensor in trainer.start.tensors.items())


@pytest.mark.parametrize("form", ["fc_norm", "norm_before_fc"])
def test_channels_are_scaled_unless_each_state_is_normed(attempt, training_inputs, form) -> None:
    trainer = train.Trainer(attempt("train", training_inputs, **SMALL, **{form: True}))
    drafter, weight = trainer.drafter, trainer.drafter.fc.weight.detach().clone()
    start = ReferenceDrafter(drafter.config, drafter.served_weights(), trainer.target_ids)
    go_on_from(drafter, start, trainer.data.conversations)
    scaled = bool((drafter.aux_scale != 1).any())
    assert scaled is (form != "fc_norm")
    assert torch.equal(drafter.fc.weight / drafter.aux_scale, weight)


def test_a_drafter_of_another_form_is_told_field_by_field(attempt, training_inputs, earlier) -> None:
    directory = earlier[0] / "flat"
    asked = {"norm_output": True, "kv_heads": 4}
    expected = {("start_drafter_mismatch", name) for name in asked}
    assert set(refused(attempt, training_inputs, directory, **asked)) == expected
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "eagle_aux_hidden_state_layer_ids": [2, 3, 5]}))
    assert ("start_drafter_mismatch", "aux_layers") in refused(attempt, training_inputs, directory)


def test_tensors_of_another_shape_or_with_nan_are_told_by_name(attempt, training_inputs, earlier) -> None:
    path = earlier[0] / "flat/model.safetensors"
    tensors = load_file(path)
    tensors["fc.weight"] = tensors["fc.weight"][:, :-1].contiguous()
    tensors["norm.weight"] = tensors["norm.weight"] * float("nan")
    del tensors["midlayer.mlp.up_proj.weight"]
    save_file(tensors, path)
    names = {"fc.weight", "norm.weight", "midlayer.mlp.up_proj.weight"}
    assert set(refused(attempt, training_inputs, path.parent)) == {("start_drafter_mismatch", name) for name in names}


def test_a_directory_without_a_drafter_is_refused(attempt, training_inputs, tmp_path) -> None:
    wanted = [("drafter_missing", "stages.train.start_from")]
    assert refused(attempt, training_inputs, tmp_path / "nothing") == wanted


def test_the_vocabulary_has_to_be_the_drafters_and_the_vocab_stage_can_take_it(
    attempt, training_inputs, earlier, tmp_path
) -> None:
    directory = earlier[0] / "nested"
    read = {"target": training_inputs["target"], "conversations": tmp_path / "conversations"}
    other = attempt("vocab", read, draft_vocab_size=40)
    vocab.run(other)
    inputs = {**training_inputs, "vocab": other.output}
    assert refused(attempt, inputs, directory) == [("vocab_map_mismatch", "d2t")]
    adopted = attempt("vocab", read, draft_vocab_size=40, adopt=str(directory))
    vocab.run(adopted)
    assert torch.equal(vocab.read_maps(adopted.output)[0], load_file(directory / "model.safetensors")["d2t"])
    begun(attempt, inputs, directory)


def test_a_map_that_is_none_is_not_adopted(attempt, training_inputs, earlier, tmp_path) -> None:
    path = earlier[0] / "flat/model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "d2t": tensors["d2t"] + 100}, path)
    read = {"target": training_inputs["target"], "conversations": tmp_path / "conversations"}
    with pytest.raises(FindingError) as raised:
        vocab.run(attempt("vocab", read, adopt=str(path.parent)))
    assert all(finding.severity is Severity.ERROR for finding in raised.value.findings)


def test_a_foreign_embedding_is_told_and_the_targets_is_used(attempt, training_inputs, earlier, tiny) -> None:
    path = earlier[0] / "flat/model.safetensors"
    foreign = torch.zeros(tiny.VOCABULARY, tiny.WIDTH)
    save_file({**load_file(path), "embed_tokens.weight": foreign}, path)
    trainer = begun(attempt, training_inputs, path.parent)
    assert "start_embedding_differs" in trainer.context.codes()
    assert bool(trainer.drafter.embedding.any())
