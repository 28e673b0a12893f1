from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.layouts import flat_config, nested_config, nested_tensor_name, sglang_layers
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
    rope_theta=100000.0,
    rope_scaling=None,
    target_architecture="LlamaForCausalLM",
    target_layers=30,
)
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def test_the_flat_layout_names_layers_for_vllm_and_for_sglang() -> None:
    flat = flat_config(CONFIG, "bfloat16")
    assert flat["eagle_aux_hidden_state_layer_ids"] == [2, 15, 27]
    assert flat["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 14, 26]
    assert flat["num_aux_hidden_states"] == 3


@pytest.mark.parametrize(
    ("architecture", "layers", "written"),
    [
        ("LlamaForCausalLM", (0, 15, 27), (-1, 14, 26)),
        ("GptOssForCausalLM", (2, 12, 21), (1, 11, 20)),
        ("DeepseekV3ForCausalLM", (2, 30, 58), (1, 29, 57)),
        ("DeepseekV3ForCausalLM", (3, 30, 58), (3, 30, 58)),
    ],
)
def test_sglang_ids_follow_its_reading_of_the_target(architecture: str, layers: tuple, written: tuple) -> None:
    assert sglang_layers(replace(CONFIG, target_architecture=architecture, aux_layers=layers)) == written


def test_ids_that_sglang_cannot_express_are_refused() -> None:
    with pytest.raises(FindingError, match="aux_layers_offset"):
        sglang_layers(replace(CONFIG, target_architecture="DeepseekV3ForCausalLM", aux_layers=(1, 30, 58)))


def test_both_layouts_say_every_norm_flag_and_never_tie() -> None:
    flat, nested = flat_config(CONFIG, "bfloat16"), nested_config(CONFIG, "bfloat16", verifier="org/target", depth=3)
    for config in (flat, nested):
        assert [config[flag] for flag in FLAGS] == [False] * 4
        assert config["tie_word_embeddings"] is False
    assert nested["transformer_layer_config"]["tie_word_embeddings"] is False


def test_the_nested_layout_has_what_vllm_requires_and_no_top_level_model_type() -> None:
    nested = nested_config(CONFIG, "bfloat16", verifier="org/target", depth=4)
    assert "model_type" not in nested
    assert nested["transformer_layer_config"]["model_type"] == "llama"
    assert nested["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 4
    assert nested["speculators_config"]["verifier"]["name_or_path"] == "org/target"


def test_the_target_width_is_a_number_in_flat_and_null_in_nested_when_equal() -> None:
    assert flat_config(CONFIG, "bfloat16")["target_hidden_size"] == 576
    assert nested_config(CONFIG, "bfloat16", verifier="t", depth=3)["target_hidden_size"] is None
    wider = replace(CONFIG, target_hidden_size=1024)
    assert nested_config(wider, "bfloat16", verifier="t", depth=3)["target_hidden_size"] == 1024


def test_only_the_layer_prefix_of_a_tensor_differs() -> None:
    assert nested_tensor_name("midlayer.mlp.up_proj.weight") == "layers.0.mlp.up_proj.weight"
    assert nested_tensor_name("fc.weight") == "fc.weight"
