from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.drafter.config import DrafterConfig, Packaging
from eagle3_backend.drafter.layouts import flat_config, nested_config
from eagle3_backend.drafter.reading import layout_of, read_config
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.findings import FindingError

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
}
CONFIG = DrafterConfig(
    hidden_size=576,
    target_hidden_size=576,
    intermediate_size=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    draft_vocab_size=8192,
    aux_layers=(2, 15, 26),
    rms_norm_eps=1e-5,
    max_position_embeddings=8192,
    rope=Rope(100000.0, "linear", {"factor": 2.0}),
    norm_before_residual=True,
)
PACKAGING = Packaging("bfloat16", "org/target", ("LlamaForCausalLM",), 3)
IDS = "eagle_aux_hidden_state_layer_ids"


def written(layout: str, config: DrafterConfig = CONFIG) -> dict:
    return flat_config(config, PACKAGING, (1, 14, 25)) if layout == "flat" else nested_config(config, PACKAGING)


def codes(config: dict, target: dict | None = TARGET) -> list[str]:
    return [finding.code for finding in read_config(config, target).findings]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_what_was_written_is_read_back_without_a_finding(layout: str) -> None:
    assert layout_of(written(layout)) == layout
    reading = read_config(written(layout), TARGET)
    assert (reading.drafter, reading.packaging) == (CONFIG, PACKAGING)
    assert (reading.findings, dict(reading.unknown)) == ((), {})


@pytest.mark.parametrize(("layout", "default"), [("flat", False), ("nested", True)])
def test_an_absent_norm_flag_means_what_the_engine_takes_it_for(layout: str, default: bool) -> None:
    config = written(layout)
    del config["norm_before_residual"]
    reading = read_config(config, TARGET)
    assert reading.drafter.norm_before_residual is default
    assert "norm_before_residual" in reading.absent
    assert codes(config) == (["norm_before_residual_missing"] if default else [])


def test_the_flag_under_eagle_config_wins() -> None:
    config = written("flat")
    config["eagle_config"]["norm_before_fc"] = True
    assert read_config(config, TARGET).drafter.norm_before_fc is True
    assert codes(config) == ["norm_before_fc_contradiction"]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_a_wider_target_is_read_from_both_layouts(layout: str) -> None:
    config = written(layout, replace(CONFIG, target_hidden_size=1024))
    assert read_config(config, TARGET).drafter.target_hidden_size == 1024


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ({}, "hidden_size"),
        ({**written("flat"), "hidden_size": "wide"}, "hidden_size"),
        ({**written("flat"), "rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({**written("flat"), "num_attention_heads": True}, "num_attention_heads"),
        ({**written("flat"), "eagle_config": 7}, "eagle_config"),
        ({**written("flat"), IDS: "2,3"}, IDS),
        ({"transformer_layer_config": {}}, "transformer_layer_config.hidden_size"),
        ({"speculators_model_type": "eagle3"}, "transformer_layer_config"),
    ],
)
def test_a_missing_or_wrong_value_is_a_finding_with_its_place(broken: dict, path: str) -> None:
    with pytest.raises(FindingError) as raised:
        read_config(broken, TARGET)
    (finding,) = raised.value.findings
    assert (finding.code, finding.path) == ("drafter_config_invalid", path)


def test_ids_for_sglang_alone_are_read_by_the_rule_of_the_target() -> None:
    config = written("flat")
    del config[IDS]
    reading = read_config(config, TARGET)
    assert (reading.drafter.aux_layers, reading.engine_ids) == ((2, 15, 26), (1, 14, 25))
    assert (reading.paths["aux_layers"], reading.findings) == (f"eagle_config.{IDS}", ())


@pytest.mark.parametrize("target", [None, {**TARGET, "architectures": ["NewForCausalLM"]}])
def test_ids_for_sglang_alone_are_doubtful_where_the_target_is_not_known(target: dict | None) -> None:
    config = written("flat")
    del config[IDS]
    assert codes(config, target) == ["aux_layers_target_unknown"]


def test_two_lists_that_mean_other_layers_are_told() -> None:
    config = written("flat")
    config["eagle_config"][IDS] = [2, 15, 26]
    (finding,) = read_config(config, TARGET).findings
    assert (finding.code, finding.actual) == ("aux_layers_contradiction", [2, 15, 26])


def test_another_number_of_aux_layers_than_those_named_is_an_error() -> None:
    config = {**written("flat"), "num_aux_hidden_states": 4}
    assert codes(config) == ["aux_count_contradiction"]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_absent_ids_stay_absent_and_the_default_is_shown(layout: str) -> None:
    config = written(layout, replace(CONFIG, aux_layers=()))
    config.get("eagle_config", {}).pop(IDS, None)
    (finding,) = read_config(config, TARGET).findings
    assert (finding.code, finding.path, finding.expected) == ("aux_layers_missing", IDS, [2, 15, 27])
    assert read_config(config, TARGET).drafter.aux_layers == ()


def test_unknown_keys_are_kept_and_shown() -> None:
    config = written("nested")
    config["transformer_layer_config"]["gate_bias"] = 1
    config["origin"] = "lab"
    reading = read_config(config, TARGET)
    assert reading.unknown == {"transformer_layer_config.gate_bias": 1, "origin": "lab"}
    assert reading.packaging.layer_keys == {"gate_bias": 1}
    assert reading.packaging.nested_keys == {"origin": "lab"}


def test_a_window_that_is_not_in_use_is_none() -> None:
    config = {**written("flat"), "sliding_window": 4096, "use_sliding_window": False}
    reading = read_config(config, TARGET)
    assert reading.drafter.windows == ()
    assert reading.packaging.layer_keys["sliding_window"] == 4096
    assert read_config({**config, "use_sliding_window": True}, TARGET).drafter.windows == (4096,)


def test_a_file_of_both_layouts_at_once_is_an_error() -> None:
    assert codes({**written("nested"), "model_type": "llama"}) == ["layout_contradiction"]
    nested = written("nested")
    assert codes({**written("flat"), "speculators_config": nested["speculators_config"]}) == ["layout_contradiction"]


def test_another_algorithm_than_eagle3_is_an_error() -> None:
    assert codes({**written("nested"), "speculators_model_type": "dflash"}) == ["speculators_algorithm_unsupported"]
