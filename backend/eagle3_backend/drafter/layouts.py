"""The two config layouts of a drafter: flat (`LlamaForCausalLMEagle3`) and nested (speculators).

Tensors are the same in both but for one prefix. Everything that differs sits in the config.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from eagle3_backend.drafter.aux_layers import IDS
from eagle3_backend.drafter.config import LLAMA, QWEN3, DrafterConfig, Packaging
from eagle3_backend.drafter.keys import (
    ARCHITECTURES,
    EAGLE,
    LAYER,
    LAYER_DEFAULTS,
    NESTED_DEFAULTS,
    NESTED_IN_FLAT,
    PROPOSAL_DEFAULTS,
    SPECULATORS,
    SPECULATORS_DEFAULTS,
    model_type_of,
)
from eagle3_backend.findings import FindingError, error

FLAT_PREFIX = "midlayer."
NESTED_PREFIX = "layers.0."
_OLDER_NORMS = {
    f"aux_norm_{name}.weight": f"fc_norm.{index}.weight" for index, name in enumerate(("low", "mid", "high"))
}


def nested_tensor_name(flat: str) -> str:
    """The nested layout's name of a flat tensor."""
    return NESTED_PREFIX + flat[len(FLAT_PREFIX) :] if flat.startswith(FLAT_PREFIX) else flat


def flat_tensor_name(name: str) -> str:
    """The flat layout's name of a tensor of either layout, or of SGLang's older names for norms of single streams."""
    name = name[len("model.") :] if name.startswith("model.") else name
    name = _OLDER_NORMS.get(name, name)
    return FLAT_PREFIX + name[len(NESTED_PREFIX) :] if name.startswith(NESTED_PREFIX) else name


def flat_config(
    drafter: DrafterConfig, packaging: Packaging, engine_ids: Optional[Sequence[int]] = None
) -> Dict[str, Any]:
    """config.json of the flat layout, right for vLLM and SGLang at once.

    vLLM reads the canonical ids at the top level, SGLang ``engine_ids`` under ``eagle_config`` (`for_sglang`).
    """
    eagle = {
        **packaging.eagle_keys,
        **({IDS: list(engine_ids)} if engine_ids else {}),
        "use_aux_hidden_state": drafter.aux_input,
        "norm_before_fc": drafter.norm_before_fc,
    }
    carried = _nested_keys(packaging)
    return {
        **LAYER_DEFAULTS,
        **packaging.layer_keys,
        "architectures": [ARCHITECTURES.get(drafter.draft_class, drafter.draft_class)],
        "model_type": packaging.model_type or model_type_of(drafter.draft_class),
        **_layer(drafter, packaging),
        "draft_vocab_size": None if drafter.target_head else drafter.draft_vocab_size,
        "target_hidden_size": drafter.target_hidden_size,
        **_norm_flags(drafter),
        **_aux_layers(drafter),
        "num_aux_hidden_states": drafter.aux_count,
        EAGLE: eagle,
        **({"dtype": packaging.dtype, "torch_dtype": packaging.dtype} if packaging.dtype else {}),
        **({NESTED_IN_FLAT: carried} if carried else {}),
    }


def nested_config(drafter: DrafterConfig, packaging: Packaging) -> Dict[str, Any]:
    """config.json of the nested layout.

    vLLM takes ``transformer_layer_config`` as it stands, without the defaults of a Llama config, so every key is there.
    Raises FindingError where the layout lacks a place: it needs a verifier and a depth, and knows two draft classes.
    """
    if drafter.draft_class not in (LLAMA, QWEN3):
        raise FindingError(
            error(
                "architecture_unsupported",
                f"The nested layout has Llama and Qwen3 drafters only, not {drafter.draft_class}.",
                path="architectures[0]",
                expected=[ARCHITECTURES[LLAMA], ARCHITECTURES[QWEN3]],
                actual=ARCHITECTURES.get(drafter.draft_class, drafter.draft_class),
                fix="Keep the flat layout, which both engines read.",
            )
        )
    if packaging.verifier is None or packaging.speculative_tokens is None:
        raise FindingError(
            error(
                "verifier_missing",
                "A nested config names the target that verifies its drafts, and how many drafts there are.",
                path="speculators_config.verifier.name_or_path",
                fix="Give the target's name (--verifier) and a depth.",
            )
        )
    layer_keys = dict(packaging.layer_keys)
    version = {key: layer_keys.pop(key) for key in ("transformers_version",) if key in layer_keys}
    eagle = {**packaging.eagle_keys, **({} if drafter.aux_input else {"use_aux_hidden_state": False})}
    same_width = drafter.target_hidden_size == drafter.hidden_size
    return {
        **NESTED_DEFAULTS,
        **version,
        **_nested_keys(packaging),
        "draft_vocab_size": None if drafter.target_head else drafter.draft_vocab_size,
        **({"dtype": packaging.dtype} if packaging.dtype else {}),
        **_aux_layers(drafter),
        **_norm_flags(drafter),
        "target_hidden_size": None if same_width else drafter.target_hidden_size,
        "tie_word_embeddings": drafter.tie_word_embeddings,
        LAYER: {
            **LAYER_DEFAULTS,
            **layer_keys,
            "model_type": model_type_of(drafter.draft_class),
            **_layer(drafter, packaging),
            "num_aux_hidden_states": drafter.aux_count,
            **({EAGLE: eagle} if eagle else {}),
        },
    }


def _nested_keys(packaging: Packaging) -> Dict[str, Any]:
    """What only a nested file has a place for: the keys that were carried, the verifier and the depth."""
    carried = dict(packaging.nested_keys)
    if packaging.verifier is None and packaging.speculative_tokens is None and SPECULATORS not in carried:
        return carried
    inner = dict(carried.get(SPECULATORS) or {})
    first, *others = inner.get("proposal_methods") or [{}]
    depth = {} if packaging.speculative_tokens is None else {"speculative_tokens": packaging.speculative_tokens}
    verifier = {**(inner.get("verifier") or {}), "architectures": list(packaging.verifier_architectures)}
    if packaging.verifier is not None:
        verifier["name_or_path"] = packaging.verifier
    carried[SPECULATORS] = {
        **SPECULATORS_DEFAULTS,
        **inner,
        "proposal_methods": [{**PROPOSAL_DEFAULTS, **first, **depth}, *others],
        "verifier": verifier,
    }
    return carried


def _layer(drafter: DrafterConfig, packaging: Packaging) -> Dict[str, Any]:
    """The keys of the layer, each in the spelling that every generation of readers knows."""
    heads = {"head_dim": drafter.head_dim} if drafter.mla is None else vars(drafter.mla)
    keys = {
        "vocab_size": drafter.vocab_size,
        "hidden_size": drafter.hidden_size,
        "intermediate_size": drafter.intermediate_size,
        "num_attention_heads": drafter.heads,
        "num_key_value_heads": drafter.kv_heads,
        **heads,
        "num_hidden_layers": drafter.layers,
        "hidden_act": drafter.hidden_act,
        "rms_norm_eps": drafter.rms_norm_eps,
        "max_position_embeddings": drafter.max_position_embeddings,
        "rope_theta": drafter.rope.theta,
        "rope_scaling": drafter.rope.scaling,
        "attention_bias": drafter.attention_bias,
        "mlp_bias": drafter.mlp_bias,
        "tie_word_embeddings": drafter.tie_word_embeddings,
        "bos_token_id": drafter.bos_token_id,
        "eos_token_id": drafter.eos_token_id,
        "pad_token_id": drafter.pad_token_id,
    }
    if packaging.rope_parameters:
        keys["rope_parameters"] = drafter.rope.parameters
    if drafter.quantization is not None:
        keys["quantization_config"] = dict(drafter.quantization)
    return {**keys, **_windows(drafter)}


def _windows(drafter: DrafterConfig) -> Dict[str, Any]:
    sizes = {size for size in drafter.windows if size is not None}
    if not sizes:
        return {}
    (size,) = sizes
    kinds = ["full_attention" if window is None else "sliding_attention" for window in drafter.windows]
    return {"layer_types": kinds, "sliding_window": size, "use_sliding_window": True}


def _aux_layers(drafter: DrafterConfig) -> Dict[str, Any]:
    return {IDS: list(drafter.aux_layers)} if drafter.aux_layers else {}


def _norm_flags(drafter: DrafterConfig) -> Dict[str, bool]:
    return {
        "norm_before_residual": drafter.norm_before_residual,
        "norm_before_fc": drafter.norm_before_fc,
        "fc_norm": drafter.fc_norm,
        "norm_output": drafter.norm_output,
    }
