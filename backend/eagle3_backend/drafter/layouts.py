"""The two config layouts of a drafter: flat (`LlamaForCausalLMEagle3`) and nested (speculators).

Tensors are the same in both but for one prefix. Everything that differs sits in the config.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.findings import FindingError, error

FLAT_PREFIX = "midlayer."
NESTED_PREFIX = "layers.0."
SPECULATORS_VERSION = "0.9.0"
"""The release whose nested layout is written."""

_SGLANG_SHIFTS_ONLY_FROM_ONE = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "KimiK2ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "Glm4MoeLiteForCausalLM",
)
"""Targets for which SGLang adds 1 to the ids only if the first one is 1 (sgl-project/sglang#25454)."""


def nested_tensor_name(flat: str) -> str:
    """The nested layout's name of a flat tensor."""
    return NESTED_PREFIX + flat[len(FLAT_PREFIX) :] if flat.startswith(FLAT_PREFIX) else flat


def sglang_layers(config: DrafterConfig) -> Tuple[int, ...]:
    """The list that SGLang's own reading of this target turns back into the canonical ids.

    It adds 1 to each id for most targets, and only from a list that starts with 1 for the DeepSeek family. Raises
    FindingError where no list gives these ids.
    """
    ids = config.aux_layers
    if config.target_architecture not in _SGLANG_SHIFTS_ONLY_FROM_ONE or ids[0] == 2:
        return tuple(layer - 1 for layer in ids)
    if ids[0] == 1:
        raise FindingError(
            error(
                "aux_layers_offset",
                f"SGLang cannot be told to capture {list(ids)} for {config.target_architecture}: a list that starts "
                "with 1 is shifted by one.",
                path="eagle_config.eagle_aux_hidden_state_layer_ids",
                actual=list(ids),
                fix="Extract hidden states with another first aux layer, for instance 2.",
            )
        )
    return ids


def flat_config(config: DrafterConfig, dtype: str) -> Dict[str, Any]:
    """config.json of the flat layout, right for vLLM and SGLang at once.

    vLLM reads the canonical ids at the top level, SGLang those under ``eagle_config`` in its own counting.
    """
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **_layer(config),
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        **_norm_flags(config),
        "eagle_aux_hidden_state_layer_ids": list(config.aux_layers),
        "num_aux_hidden_states": len(config.aux_layers),
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(sglang_layers(config)),
            "use_aux_hidden_state": True,
            "norm_before_fc": config.norm_before_fc,
        },
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def nested_config(config: DrafterConfig, dtype: str, *, verifier: str, depth: int) -> Dict[str, Any]:
    """config.json of the nested layout; ``verifier`` is the target's name or path, ``depth`` the proposed k.

    vLLM takes ``transformer_layer_config`` as it stands, without the defaults of a Llama config, so every key is there.
    """
    same_width = config.target_hidden_size == config.hidden_size
    return {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": config.draft_vocab_size,
        "dtype": dtype,
        "eagle_aux_hidden_state_layer_ids": list(config.aux_layers),
        "embed_requires_grad": False,
        **_norm_flags(config),
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "accept_tolerance": 0.0,
                    "proposal_type": "greedy",
                    "speculative_tokens": depth,
                    "verifier_accept_k": 1,
                }
            ],
            "verifier": {"architectures": [config.target_architecture], "name_or_path": verifier},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": SPECULATORS_VERSION,
        "target_hidden_size": None if same_width else config.target_hidden_size,
        "tie_word_embeddings": False,
        "transformer_layer_config": {
            "model_type": "llama",
            **_layer(config),
            "num_aux_hidden_states": len(config.aux_layers),
            "pretraining_tp": 1,
        },
    }


def _layer(config: DrafterConfig) -> Dict[str, Any]:
    """The Llama keys that both layouts carry, each in the spelling that every generation of readers knows."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "num_hidden_layers": 1,
        "hidden_act": config.hidden_act,
        "rms_norm_eps": config.rms_norm_eps,
        "initializer_range": 0.02,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta,
        "rope_scaling": config.rope_scaling,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "use_cache": True,
    }


def _norm_flags(config: DrafterConfig) -> Dict[str, bool]:
    return {
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": config.norm_before_fc,
        "fc_norm": config.fc_norm,
        "norm_output": config.norm_output,
    }
