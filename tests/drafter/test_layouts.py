from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.drafter.config import DrafterConfig, MlaShape, Packaging
from eagle3_backend.drafter.layouts import flat_config, flat_tensor_name, nested_config, nested_tensor_name
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.findings import FindingError

CONFIG = DrafterConfig(
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
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def test_the_flat_layout_names_layers_for_vllm_and_for_sglang() -> None:
    flat = flat_config(CONFIG, PACKAGING, (1, 14, 26))
    assert flat["eagle_aux_hidden_state_layer_ids"] == [2, 15, 27]
    assert flat["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 14, 26]
    assert flat["num_aux_hidden_states"] == 3


def test_no_layer_ids_are_made_up() -> None:
    unnamed = replace(CONFIG, aux_layers=(), unnamed_aux_count=4)
    flat, nested = flat_config(unnamed, PACKAGING), nested_config(unnamed, PACKAGING)
    for config in (flat, flat["eagle_config"], nested, nested["transformer_layer_config"]):
        assert "eagle_aux_hidden_state_layer_ids" not in config
    assert flat["num_aux_hidden_states"] == nested["transformer_layer_config"]["num_aux_hidden_states"] == 4


def test_both_layouts_say_every_norm_flag() -> None:
    flat, nested = flat_config(CONFIG, PACKAGING), nested_config(CONFIG, PACKAGING)
    for config in (flat, nested):
        assert [config[flag] for flag in FLAGS] == [False] * 4
        assert config["tie_word_embeddings"] is False
    assert nested["transformer_layer_config"]["tie_word_embeddings"] is False
    flat = flat_config(replace(CONFIG, norm_before_fc=True), PACKAGING)
    assert flat["norm_before_fc"] is flat["eagle_config"]["norm_before_fc"] is True


def test_the_nested_layout_has_what_vllm_requires_and_no_top_level_model_type() -> None:
    nested = nested_config(CONFIG, PACKAGING)
    assert "model_type" not in nested
    assert nested["transformer_layer_config"]["model_type"] == "llama"
    assert nested["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 4
    assert nested["speculators_config"]["verifier"]["name_or_path"] == "org/target"


@pytest.mark.parametrize("packaging", [replace(PACKAGING, verifier=None), replace(PACKAGING, speculative_tokens=None)])
def test_the_nested_layout_needs_a_verifier_and_a_depth(packaging: Packaging) -> None:
    with pytest.raises(FindingError, match="verifier_missing"):
        nested_config(CONFIG, packaging)


def test_a_window_is_said_to_be_in_use_wherever_readers_look() -> None:
    windowed = replace(CONFIG, layers=2, windows=(None, 2048))
    for layer in (flat_config(windowed, PACKAGING), nested_config(windowed, PACKAGING)["transformer_layer_config"]):
        assert layer["layer_types"] == ["full_attention", "sliding_attention"]
        assert (layer["sliding_window"], layer["use_sliding_window"]) == (2048, True)


def test_latent_attention_has_a_flat_layout_only() -> None:
    latent = replace(CONFIG, draft_class="deepseek", mla=MlaShape(24, 16, 8, 4, 8), head_dim=12)
    flat = flat_config(latent, PACKAGING)
    assert flat["architectures"] == ["Eagle3DeepseekV2ForCausalLM"]
    assert (flat["kv_lora_rank"], "head_dim" in flat) == (16, False)
    with pytest.raises(FindingError, match="architecture_unsupported"):
        nested_config(latent, PACKAGING)


def test_the_target_width_is_a_number_in_flat_and_null_in_nested_when_equal() -> None:
    assert flat_config(CONFIG, PACKAGING)["target_hidden_size"] == 576
    assert nested_config(CONFIG, PACKAGING)["target_hidden_size"] is None
    assert nested_config(replace(CONFIG, target_hidden_size=1024), PACKAGING)["target_hidden_size"] == 1024


def test_only_the_layer_prefix_of_a_tensor_differs() -> None:
    assert nested_tensor_name("midlayer.mlp.up_proj.weight") == "layers.0.mlp.up_proj.weight"
    for name in ("midlayer.mlp.up_proj.weight", "fc.weight"):
        assert flat_tensor_name(nested_tensor_name(name)) == flat_tensor_name(name) == name
