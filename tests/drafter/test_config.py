from __future__ import annotations

from eagle3_backend.drafter.config import DrafterConfig, drafter_for
from eagle3_backend.drafter.rope import Rope

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def test_a_drafter_takes_shape_rotary_base_and_positions_from_its_target() -> None:
    config = drafter_for(TARGET, (2, 15, 27), 8192)
    assert (config.hidden_size, config.heads, config.kv_heads, config.head_dim) == (576, 9, 3, 64)
    assert (config.rope, config.max_position_embeddings) == (Rope(100000.0), 8192)
    assert not any((config.norm_before_residual, config.norm_before_fc, config.fc_norm, config.norm_output))


def test_a_wrapped_text_model_is_read_through_text_config() -> None:
    wrapped = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {**TARGET, "architectures": None}}
    config = drafter_for(wrapped, (2, 15, 27), 8192)
    assert config.hidden_size == 576


def test_a_missing_head_dim_is_width_by_heads() -> None:
    assert drafter_for({**TARGET, "head_dim": None}, (2, 15, 27), 8192).head_dim == 64


def test_json_and_back_is_the_same_drafter() -> None:
    config = drafter_for(TARGET, (2, 15, 27), 8192)
    assert DrafterConfig.from_json(config.to_json()) == config
