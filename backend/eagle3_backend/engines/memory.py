"""What a served target takes of each GPU's memory, from its config alone. An estimate for before the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

GIB = 1 << 30
FIXED = 2 * GIB
"""CUDA context, activations and graphs, about."""

_BITS = {"fp8": 8.0, "compressed-tensors": 8.0, "awq": 4.5, "gptq": 4.5, "mxfp4": 4.25, "bitsandbytes": 4.5}
"""Bits a quantised weight, with its scales, by method; a method that is not here counts as 8."""


@dataclass(frozen=True)
class Memory:
    """Bytes on each GPU: ``weights`` of target and drafter, ``cache_per_token`` of both, ``least`` for one request of
    the planned context beside the weights."""

    weights: int
    cache_per_token: int
    least: int


def forecast(
    target: Mapping[str, Any], drafter: Optional[Mapping[str, Any]], tensor_parallel: int, context: int
) -> Memory:
    """Memory of each of ``tensor_parallel`` GPUs; 0 for what the configs do not say."""
    text = target.get("text_config") or target
    weights = _weights(text, _bits(target)) // tensor_parallel
    cache = _cache(text, tensor_parallel)
    if drafter is not None:
        layer = drafter.get("transformer_layer_config") or drafter
        weights += _drafter_weights(drafter, layer) // tensor_parallel
        cache += _cache({**layer, "num_hidden_layers": layer.get("num_hidden_layers", 1)}, tensor_parallel)
    return Memory(weights, cache, weights + cache * context + FIXED)


def _bits(target: Mapping[str, Any]) -> float:
    text = target.get("text_config") or {}
    config = target.get("quantization_config") or text.get("quantization_config")
    if not config:
        return 16.0
    groups = (config.get("config_groups") or {}).values()
    bits = [(group.get("weights") or {}).get("num_bits") for group in groups if isinstance(group, Mapping)]
    if config.get("bits") or any(bits):
        return float(config.get("bits") or max(bit for bit in bits if bit)) * 1.06
    return _BITS.get(str(config.get("quant_method")), 8.0)


def _size(config: Mapping[str, Any], *keys: str) -> int:
    return next((int(config[key]) for key in keys if isinstance(config.get(key), int)), 0)


def _weights(text: Mapping[str, Any], bits: float) -> int:
    hidden, layers = _size(text, "hidden_size"), _size(text, "num_hidden_layers")
    experts = _size(text, "n_routed_experts", "num_experts", "num_local_experts")
    dense = 3 * hidden * _size(text, "intermediate_size")
    plain = layers
    routed = 0
    if experts:
        width = _size(text, "moe_intermediate_size", "intermediate_size")
        shared = _size(text, "n_shared_experts")
        plain = _size(text, "first_k_dense_replace")
        routed = (layers - plain) * 3 * hidden * width * (experts + shared)
    body = layers * _attention(text, hidden) + plain * dense + routed
    tables = (1 if text.get("tie_word_embeddings") else 2) * hidden * _size(text, "vocab_size")
    return int(body * bits / 8) + 2 * tables


def _attention(text: Mapping[str, Any], width: int) -> int:
    heads, hidden = _size(text, "num_attention_heads"), _size(text, "hidden_size")
    rank = _size(text, "kv_lora_rank")
    if rank:
        nope, rope, value = (_size(text, key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        low = _size(text, "q_lora_rank")
        queries = width * low + low * heads * (nope + rope) if low else width * heads * (nope + rope)
        return queries + width * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    head = _head(text)
    kv_heads = _size(text, "num_key_value_heads") or heads
    return width * head * (heads + 2 * kv_heads) + heads * head * hidden


def _head(text: Mapping[str, Any]) -> int:
    heads = _size(text, "num_attention_heads")
    return _size(text, "head_dim") or (_size(text, "hidden_size") // heads if heads else 0)


def _cache(text: Mapping[str, Any], tensor_parallel: int) -> int:
    """Bytes of one token. Latent attention keeps one vector for all heads, on every GPU; else each GPU holds its heads,
    one at least."""
    layers, rank = _size(text, "num_hidden_layers"), _size(text, "kv_lora_rank")
    if rank:
        return 2 * layers * (rank + _size(text, "qk_rope_head_dim"))
    kv_heads = _size(text, "num_key_value_heads") or _size(text, "num_attention_heads")
    return 2 * 2 * layers * max(1, kv_heads // tensor_parallel) * _head(text)


def _drafter_weights(config: Mapping[str, Any], layer: Mapping[str, Any]) -> int:
    hidden = _size(layer, "hidden_size")
    fused = 3 * (_size(config, "target_hidden_size") or hidden) * hidden
    head = hidden * (_size(config, "draft_vocab_size") or _size(layer, "vocab_size"))
    body = _attention(layer, 2 * hidden) + 3 * hidden * _size(layer, "intermediate_size")
    return 2 * (fused + head + body)
