from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.drafter.checks.vocabulary import map_findings  # noqa: E402
from eagle3_backend.drafter.convert_directory import convert_directory  # noqa: E402
from eagle3_backend.drafter.tensorfile import read_header, read_integers  # noqa: E402
from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import export, train, vocab  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def inputs(tiny, attempt, tmp_path):
    target = tiny.write_target(tmp_path / "target")
    data = tiny.write_conversations(tmp_path / "conversations")
    chosen = attempt("vocab", {"target": target, "conversations": data}, draft_vocab_size=44)
    vocab.run(chosen)
    store = tiny.write_store(tmp_path / "store", target)
    trained = attempt("train", {"target": target, "store": store, "vocab": chosen.output}, epochs=1)
    train.run(trained)
    return {"target": target, "checkpoint": trained.output, "vocab": chosen.output}


@pytest.fixture
def exported(attempt, inputs):
    context = attempt("export", inputs)
    export.run(context)
    return context


def test_both_layouts_hold_the_same_weights_under_their_own_names(exported) -> None:
    flat, nested = (load_file(exported.output / layout / "model.safetensors") for layout in ("flat", "nested"))
    assert {name.replace("midlayer.", "layers.0.") for name in flat} == set(nested)
    for name, tensor in flat.items():
        assert torch.equal(nested[name.replace("midlayer.", "layers.0.")], tensor)


@pytest.mark.parametrize(("layout", "other"), [("flat", "nested"), ("nested", "flat")])
def test_either_layout_converts_into_what_was_exported_as_the_other(exported, inputs, tmp_path, layout, other) -> None:
    convert_directory(exported.output / layout, tmp_path / "out", other, target=inputs["target"])
    configs = [json.loads((place / "config.json").read_text()) for place in (tmp_path / "out", exported.output / other)]
    assert configs[0] == configs[1]
    tensors = [load_file(place / "model.safetensors") for place in (tmp_path / "out", exported.output / other)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensor) for name, tensor in tensors[1].items())


def test_weights_are_bf16_and_maps_keep_their_types(exported) -> None:
    header = read_header(exported.output / "flat/model.safetensors")
    dtypes = {name: entry.dtype for name, entry in header.tensors.items()}
    assert (dtypes.pop("d2t"), dtypes.pop("t2d")) == ("int64", "bool")
    assert set(dtypes.values()) == {"bfloat16"}


def test_the_files_on_disk_pass_the_exact_check_of_both_maps(exported, tiny) -> None:
    header = read_header(exported.output / "nested/model.safetensors")
    d2t, t2d = read_integers(header, "d2t"), read_integers(header, "t2d")
    assert map_findings(d2t, t2d, tiny.VOCABULARY) == []


def test_the_head_is_always_written_and_the_targets_embedding_never(exported) -> None:
    names = read_header(exported.output / "flat/model.safetensors").tensors
    assert "lm_head.weight" in names
    assert "embed_tokens.weight" not in names


def test_configs_say_the_ids_of_the_store_and_the_targets_rotary_base(exported, tiny) -> None:
    flat = json.loads((exported.output / "flat/config.json").read_text())
    nested = json.loads((exported.output / "nested/config.json").read_text())
    assert flat["eagle_aux_hidden_state_layer_ids"] == nested["eagle_aux_hidden_state_layer_ids"] == list(tiny.AUX)
    assert flat["rope_theta"] == nested["transformer_layer_config"]["rope_theta"] == 10000.0


def test_the_verifier_is_the_target_unless_it_is_named(attempt, inputs) -> None:
    context = attempt("export", inputs, verifier="org/target", depth=5)
    export.run(context)
    nested = json.loads((context.output / "nested/config.json").read_text())["speculators_config"]
    assert nested["verifier"]["name_or_path"] == "org/target"
    assert nested["proposal_methods"][0]["speculative_tokens"] == 5


def broken_map(inputs) -> None:
    path = inputs["vocab"] / vocab.FILE
    tensors = load_file(path)
    save_file({**tensors, "d2t": tensors["d2t"] + torch.arange(len(tensors["d2t"]))}, path)


def lost_head(inputs) -> None:
    path = inputs["checkpoint"] / train.WEIGHTS
    weights = load_file(path)
    del weights["lm_head.weight"]
    save_file(weights, path)


@pytest.mark.parametrize(("fault", "code"), [(broken_map, "d2t_absolute_ids"), (lost_head, "lm_head_missing")])
def test_a_drafter_that_engines_would_misread_is_not_written(attempt, inputs, fault, code) -> None:
    fault(inputs)
    context = attempt("export", inputs)
    with pytest.raises(FindingError, match=code):
        export.run(context)
    assert not list(context.output.iterdir())
