"""Conversion of configs: what is told, what is refused, and what is never lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.drafter.config import DrafterConfig, MlaShape, Packaging
from eagle3_backend.drafter.convert import Conversion, convert_config
from eagle3_backend.drafter.layouts import flat_config, nested_config
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.findings import FindingError, Severity

IDS = "eagle_aux_hidden_state_layer_ids"
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
}
DRAFTER = DrafterConfig(
    hidden_size=576,
    target_hidden_size=576,
    intermediate_size=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    draft_vocab_size=8192,
    aux_layers=(2, 15, 27),
    rms_norm_eps=1e-5,
    max_position_embeddings=8192,
    rope=Rope(100000.0),
)
PACKAGING = Packaging("bfloat16", "org/target", ("LlamaForCausalLM",), 4)
FLAT, NESTED = flat_config(DRAFTER, PACKAGING, (1, 14, 26)), nested_config(DRAFTER, PACKAGING)


def told(conversion: Conversion, at_least: Severity = Severity.WARNING) -> dict[str, str]:
    """Code to severity of what a conversion tells beyond remarks."""
    return {
        finding.code: finding.severity.value
        for finding in conversion.findings
        if finding.severity.rank >= at_least.rank
    }


def nested(**changes) -> dict:
    return nested_config(replace(DRAFTER, **changes), PACKAGING)


def test_a_drafter_that_every_engine_can_serve_is_converted_without_a_word() -> None:
    assert told(convert_config(NESTED, "flat", TARGET)) == told(convert_config(FLAT, "nested", TARGET)) == {}


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"norm_before_residual": True}, "norm_before_residual_unsupported", "warning"),
        ({"windows": (2048,)}, "sliding_window_unsupported", "warning"),
        ({"attention_bias": True}, "attention_bias_unsupported", "error"),
        ({"draft_class": "qwen3"}, "architecture_unsupported", "error"),
        ({"aux_layers": (2, 15, 30)}, "aux_layers_inexpressible", "error"),
    ],
)
def test_what_sglang_cannot_do_is_told_when_it_is_meant_and_kept_in_any_case(changes, code, severity) -> None:
    source = nested(**changes)
    assert told(convert_config(source, "flat", TARGET))[code] == severity
    assert told(convert_config(source, "flat", TARGET, engines=("sglang",)))[code] == severity
    for_vllm = convert_config(source, "flat", TARGET, engines=("vllm",))
    assert told(for_vllm) == {}
    assert convert_config(for_vllm.config, "nested", TARGET).config == source


def test_both_norms_before_fc_are_told_once() -> None:
    conversion = convert_config(nested(norm_before_fc=True, fc_norm=True), "flat", TARGET)
    assert [finding.code for finding in conversion.findings].count("norm_flags_both") == 1


def test_ids_that_only_one_engine_reads_as_usual_ask_for_a_decision() -> None:
    source = {key: value for key, value in FLAT.items() if key != IDS}
    source["eagle_config"] = {**source["eagle_config"], IDS: [2, 15, 27]}
    conversion = convert_config(source, "nested", TARGET)
    assert told(conversion) == {"aux_layers_offset": "error"}
    assert conversion.config[IDS] == [3, 16, 28]


def test_ids_beside_the_usual_ones_are_a_warning_and_are_not_shifted() -> None:
    conversion = convert_config(nested(aux_layers=(1, 14, 26)), "flat", TARGET)
    assert told(conversion) == {"aux_layers_offset": "warning"}
    assert conversion.config[IDS] == [1, 14, 26]


def test_ids_for_sglang_alone_cannot_be_converted_without_the_target() -> None:
    source = {key: value for key, value in FLAT.items() if key != IDS}
    assert told(convert_config(source, "nested")) == {"aux_layers_target_unknown": "error"}
    assert told(convert_config(source, "nested", TARGET)) == {}


@pytest.mark.parametrize("target", [None, {**TARGET, "architectures": ["NewForCausalLM"]}])
def test_a_list_for_a_target_that_sglang_may_count_otherwise_is_a_warning(target) -> None:
    conversion = convert_config(NESTED, "flat", target)
    assert told(conversion) == {"aux_layers_target_unknown": "warning"}
    assert conversion.config["eagle_config"][IDS] == [1, 14, 26]
    assert told(convert_config(NESTED, "flat", target, engines=("vllm",))) == {}


@pytest.mark.parametrize(
    ("ids", "code"), [((2, 2, 27), "aux_layers_duplicate"), ((2, 15, 31), "aux_layers_out_of_range")]
)
def test_impossible_ids_are_errors(ids, code) -> None:
    assert told(convert_config(nested(aux_layers=ids), "flat", TARGET, engines=("vllm",)))[code] == "error"


def test_no_ids_are_made_up() -> None:
    conversion = convert_config(nested(aux_layers=()), "flat", TARGET)
    assert told(conversion) == {"aux_layers_missing": "warning"}
    assert IDS not in conversion.config
    assert IDS not in conversion.config["eagle_config"]


def test_the_embedding_is_not_tied_to_the_head_any_more() -> None:
    conversion = convert_config({**FLAT, "tie_word_embeddings": True}, "nested", TARGET)
    assert told(conversion) == {"tie_word_embeddings_draft": "warning"}
    assert conversion.config["tie_word_embeddings"] is False
    assert conversion.config["transformer_layer_config"]["tie_word_embeddings"] is False


def test_spellings_of_the_rotary_embedding_that_contradict_each_other_are_an_error() -> None:
    source = {**FLAT, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert told(convert_config(source, "nested", TARGET)) == {"rope_contradiction": "error"}


def test_latent_attention_has_no_nested_layout() -> None:
    latent = replace(DRAFTER, draft_class="deepseek", mla=MlaShape(24, 16, 8, 4, 8), head_dim=12)
    source = flat_config(latent, PACKAGING, (1, 14, 26))
    with pytest.raises(FindingError, match="architecture_unsupported"):
        convert_config(source, "nested", TARGET)
    source = flat_config(replace(latent, norm_before_fc=True), PACKAGING, (1, 14, 26))
    assert told(convert_config(source, "flat", TARGET)) == {"norm_flag_unsupported": "error"}


def test_a_nested_file_is_written_for_sglang_by_mistake_only() -> None:
    assert told(convert_config(FLAT, "nested", TARGET, engines=("sglang",))) == {"model_type_missing": "error"}


class TestVerifier:
    """The target's name, which a nested file must have."""

    BARE = flat_config(DRAFTER, Packaging("bfloat16"), (1, 14, 26))

    def test_it_has_to_be_named_where_the_source_does_not(self) -> None:
        with pytest.raises(FindingError, match="verifier_missing"):
            convert_config(self.BARE, "nested", TARGET)

    def test_the_name_given_wins_with_the_targets_architecture(self) -> None:
        verifier = convert_config(NESTED, "nested", {**TARGET, "architectures": ["Qwen3ForCausalLM"]}, verifier="org/b")
        assert verifier.config["speculators_config"]["verifier"] == {
            "architectures": ["Qwen3ForCausalLM"],
            "name_or_path": "org/b",
        }

    def test_a_path_of_this_machine_is_told(self) -> None:
        assert told(convert_config(FLAT, "nested", TARGET, verifier="/models/a")) == {"verifier_path_local": "warning"}

    def test_a_depth_that_nobody_names_is_said(self) -> None:
        conversion = convert_config(self.BARE, "nested", TARGET, verifier="org/target")
        assert "speculative_tokens_assumed" in told(conversion, Severity.INFO)
        named = convert_config(self.BARE, "nested", TARGET, verifier="org/target", depth=5)
        assert named.config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 5
        assert "speculative_tokens_assumed" not in told(named, Severity.INFO)


def test_keys_of_one_layout_travel_through_the_other() -> None:
    source = {**NESTED, "auto_map": {"": "config.Eagle3SpeculatorConfig"}, "x_origin": "lab"}
    source["transformer_layer_config"] = {**source["transformer_layer_config"], "x_gate": 1}
    flat = convert_config(source, "flat", TARGET).config
    assert ("auto_map" in flat, flat["x_gate"]) == (False, 1)
    assert convert_config(flat, "nested", TARGET).config == source


def test_names_that_change_are_told() -> None:
    source = {**FLAT, "architectures": ["LlamaForCausalLM"], "model_type": "qwen2", "use_aux_norm": True}
    del source["fc_norm"]
    conversion = convert_config(source, "flat", TARGET)
    remarks = {finding.code: finding.actual for finding in conversion.findings if finding.severity is Severity.INFO}
    assert remarks == {
        "architecture_renamed": "LlamaForCausalLM",
        "model_type_replaced": "qwen2",
        "keys_respelled": ["use_aux_norm"],
    }
    assert (conversion.config["architectures"], conversion.config["fc_norm"]) == (["LlamaForCausalLMEagle3"], True)
