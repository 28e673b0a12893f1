"""Reads a drafter that somebody else wrote: which layout it is in, and what it is in the canonical form."""

from __future__ import annotations

from typing import Any, List, Mapping, Tuple

from eagle3_backend.drafter.config import DrafterConfig, rope_of
from eagle3_backend.drafter.layouts import FLAT_PREFIX, NESTED_PREFIX
from eagle3_backend.findings import Finding, FindingError, error, warning

_IDS = "eagle_aux_hidden_state_layer_ids"
_LAYER = "transformer_layer_config"


def layout_of(config: Mapping[str, Any]) -> str:
    """`nested` for a config of speculators, else `flat`."""
    return "nested" if isinstance(config.get(_LAYER), Mapping) else "flat"


def flat_tensor_name(name: str) -> str:
    """The flat layout's name of a tensor of either layout."""
    return FLAT_PREFIX + name[len(NESTED_PREFIX) :] if name.startswith(NESTED_PREFIX) else name


def read_config(config: Mapping[str, Any], target: Mapping[str, Any]) -> DrafterConfig:
    """The drafter behind a config.json of either layout, for a target whose config.json is ``target``.

    An absent ``norm_before_residual`` is true in the nested layout and false in the flat one, as vLLM reads it.
    Raises FindingError `drafter_config_invalid`.
    """
    try:
        return _read(config, target)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        reason = f"{type(problem).__name__} {problem}"
        raise FindingError(
            error(
                "drafter_config_invalid",
                f"The drafter's config lacks a field or has a wrong value: {reason}.",
                path="config.json",
                expected="a flat EAGLE-3 config, or a nested one of speculators",
                actual=reason,
            )
        ) from problem


def _read(config: Mapping[str, Any], target: Mapping[str, Any]) -> DrafterConfig:
    nested = layout_of(config) == "nested"
    layer = config[_LAYER] if nested else config
    text = target.get("text_config") or target
    hidden, heads = int(layer["hidden_size"]), int(layer["num_attention_heads"])
    theta, scaling = rope_of(layer)
    return DrafterConfig(
        hidden_size=hidden,
        target_hidden_size=int(config.get("target_hidden_size") or hidden),
        intermediate_size=int(layer["intermediate_size"]),
        heads=heads,
        kv_heads=int(layer.get("num_key_value_heads") or heads),
        head_dim=int(layer.get("head_dim") or hidden // heads),
        vocab_size=int(layer["vocab_size"]),
        draft_vocab_size=int(config.get("draft_vocab_size") or layer["vocab_size"]),
        aux_layers=_aux_layers(config, int(text["num_hidden_layers"])),
        rms_norm_eps=float(layer["rms_norm_eps"]),
        max_position_embeddings=int(layer["max_position_embeddings"]),
        rope_theta=theta,
        rope_scaling=scaling,
        target_architecture=(target.get("architectures") or [""])[0],
        target_layers=int(text["num_hidden_layers"]),
        bos_token_id=layer.get("bos_token_id"),
        eos_token_id=layer.get("eos_token_id"),
        hidden_act=str(layer.get("hidden_act") or "silu"),
        norm_before_residual=bool(config.get("norm_before_residual", nested)),
        norm_before_fc=bool(config.get("norm_before_fc", False)),
        fc_norm=bool(config.get("fc_norm", False)),
        norm_output=bool(config.get("norm_output", False)),
    )


def _aux_layers(config: Mapping[str, Any], layers: int) -> Tuple[int, ...]:
    """Ids as vLLM reads them: at the top level, else under ``eagle_config``, else its default."""
    ids = config.get(_IDS) or (config.get("eagle_config") or {}).get(_IDS) or (2, layers // 2, layers - 3)
    return tuple(int(layer) for layer in ids)


def check_against_target(config: Mapping[str, Any], drafter: DrafterConfig, target: Mapping[str, Any]) -> List[Finding]:
    """Whether a drafter belongs to a target of this width and vocabulary, and says which layers it wants."""
    text = target.get("text_config") or target
    findings = []
    for code, name, actual, expected in (
        ("hidden_size_mismatch", "hidden_size", drafter.target_hidden_size, text["hidden_size"]),
        ("vocab_size_mismatch", "vocab_size", drafter.vocab_size, text["vocab_size"]),
    ):
        if actual != expected:
            message = f"The drafter was made for a target of {name} {actual}; this one has {expected}."
            findings.append(error(code, message, path=name, expected=expected, actual=actual))
    if not config.get(_IDS):
        findings.append(
            warning(
                "aux_layers_missing",
                f"The config names no aux layers where every engine looks; {list(drafter.aux_layers)} is assumed.",
                path=_IDS,
                actual=list(drafter.aux_layers),
                fix=f"Write {_IDS} at the top level of the config.",
            )
        )
    return findings
