"""What one EAGLE-3 drafter is, in one canonical form that both config layouts are written from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Mapping, Optional, Tuple


@dataclass(frozen=True)
class DrafterConfig:
    """Shapes and conventions of a one-layer Llama drafter.

    ``aux_layers`` are canonical ids: id i names the stream entering target layer i, 0 <= i <= target layers,
    ascending. ``rope_scaling`` is the scaling dictionary with a ``rope_type``, None for plain rotary embeddings. The
    four norm flags are always written out: readers disagree on their defaults (vLLM takes an absent
    ``norm_before_residual`` as true in the nested layout and as false in the flat one). ``target_architecture`` is the
    first of the target's ``architectures``; it decides how SGLang counts layer ids.
    """

    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    aux_layers: Tuple[int, ...]
    rms_norm_eps: float
    max_position_embeddings: int
    rope_theta: float
    rope_scaling: Optional[Dict[str, Any]]
    target_architecture: str
    target_layers: int
    bos_token_id: Any = None
    eos_token_id: Any = None
    hidden_act: str = "silu"
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    def to_json(self) -> Dict[str, Any]:
        return {**asdict(self), "aux_layers": list(self.aux_layers)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DrafterConfig:
        """Rebuild from `to_json`. Raises TypeError for missing or unknown keys."""
        return cls(**{**data, "aux_layers": tuple(data["aux_layers"])})


def drafter_for(target: Mapping[str, Any], aux_layers: Tuple[int, ...], draft_vocab_size: int) -> DrafterConfig:
    """The default drafter of a target: its width, heads and MLP in one layer, its rotary embedding and positions.

    ``target`` is the target's config.json; a wrapped text model is read through ``text_config``. Raises KeyError where
    the config lacks a size.
    """
    text = target.get("text_config") or target
    theta, scaling = rope_of(text)
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    return DrafterConfig(
        hidden_size=hidden,
        target_hidden_size=hidden,
        intermediate_size=text["intermediate_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or hidden // heads,
        vocab_size=text["vocab_size"],
        draft_vocab_size=draft_vocab_size,
        aux_layers=tuple(aux_layers),
        rms_norm_eps=text["rms_norm_eps"],
        max_position_embeddings=text["max_position_embeddings"],
        rope_theta=theta,
        rope_scaling=scaling,
        target_architecture=(target.get("architectures") or [""])[0],
        target_layers=text["num_hidden_layers"],
        bos_token_id=text.get("bos_token_id", target.get("bos_token_id")),
        eos_token_id=text.get("eos_token_id", target.get("eos_token_id")),
    )


def rope_of(config: Mapping[str, Any]) -> Tuple[float, Optional[Dict[str, Any]]]:
    """Rotary base and scaling of a config in either spelling.

    transformers 4 writes ``rope_theta`` and ``rope_scaling``, transformers 5 ``rope_parameters`` with the base inside.
    Like transformers 5.19, a ``rope_scaling`` that is there wins with the top-level base, else ``rope_parameters``.
    """
    scaling = config.get("rope_scaling")
    theta = config.get("rope_theta")
    if not scaling:
        scaling = config.get("rope_parameters") or {}
        theta = scaling.get("rope_theta", theta)
    members = {key: value for key, value in scaling.items() if key not in ("rope_theta", "type")}
    members.setdefault("rope_type", scaling.get("type", "default"))
    return float(10000.0 if theta is None else theta), None if members["rope_type"] == "default" else members
