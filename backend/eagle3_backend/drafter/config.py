"""What one EAGLE-3 drafter is, in one canonical form that every config layout is read into and written from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from eagle3_backend.drafter.rope import Rope
from eagle3_backend.drafter.target import Target

LLAMA, QWEN3, DEEPSEEK = "llama", "qwen3", "deepseek"
"""Draft classes: the Llama one, the one with norms on q and k, and the one with multi-head latent attention."""

DEFAULT_AUX_COUNT = 3
"""Aux streams that every engine expects where a config says nothing (vllm `llama_eagle3.py`, sglang likewise)."""


@dataclass(frozen=True)
class MlaShape:
    """Sizes of multi-head latent attention (DeepSeek-V2). ``q_lora_rank`` None: the query has no low rank part."""

    q_lora_rank: Optional[int]
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def head_dim(self) -> int:
        """What a query or key head spans."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(frozen=True)
class DrafterConfig:
    """Everything that decides what a drafter computes. Where and how a file said so is not part of it.

    - ``aux_layers`` are canonical ids: id i names the stream entering target layer i, 0 <= i <= target layers,
      ascending. Empty: the file names none and each engine takes the target's default; ``unnamed_aux_count`` then says
      how many streams ``fc`` reads.
    - ``draft_class`` is one of `LLAMA`, `QWEN3`, `DEEPSEEK`, or the architecture's own name where no engine knows it.
    - ``head_dim`` of a drafter with ``mla`` is what its query and key heads span (nope + rope).
    - ``windows`` holds the attention window of each layer, None for full attention; empty: full attention everywhere.
    - ``target_head``: the draft vocabulary is written as null, on which SGLang loads the target's own head.
    - The norm flags: ``norm_before_residual`` makes the normed hidden state the residual, ``norm_before_fc`` puts one
      norm over all aux streams before ``fc``, ``fc_norm`` one for each stream, ``norm_output`` hands the next step
      the state after the final norm.
    - ``aux_input`` false: an EAGLE-1 style input without ``fc``.
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
    rope: Rope
    draft_class: str = LLAMA
    layers: int = 1
    mla: Optional[MlaShape] = None
    unnamed_aux_count: int = DEFAULT_AUX_COUNT
    aux_input: bool = True
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    windows: Tuple[Optional[int], ...] = ()
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    target_head: bool = False
    hidden_act: str = "silu"
    quantization: Optional[Mapping[str, Any]] = None
    bos_token_id: Any = None
    eos_token_id: Any = None
    pad_token_id: Any = None

    @property
    def aux_count(self) -> int:
        """How many streams of the target ``fc`` reads side by side."""
        return len(self.aux_layers) or self.unnamed_aux_count

    @property
    def rope_dim(self) -> int:
        """How many channels of a head are rotated."""
        return self.mla.qk_rope_head_dim if self.mla else self.head_dim

    def to_json(self) -> Dict[str, Any]:
        return {**asdict(self), "aux_layers": list(self.aux_layers), "windows": list(self.windows)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DrafterConfig:
        """Rebuild from `to_json`. Raises TypeError for missing or unknown keys."""
        return cls(
            **{
                **data,
                "aux_layers": tuple(data["aux_layers"]),
                "windows": tuple(data["windows"]),
                "rope": Rope(**data["rope"]),
                "mla": data["mla"] and MlaShape(**data["mla"]),
            }
        )


@dataclass(frozen=True)
class Packaging:
    """What a drafter's file says beside the network itself; nothing of it changes what is computed.

    ``verifier`` is the target's name or path, ``speculative_tokens`` the proposed draft depth, ``rope_parameters``
    whether the newer spelling of the rotary embedding is there, ``model_type`` how a flat file of another draft class
    than Llama and Qwen3 names its config class, where that is not the usual one. The three mappings carry
    what this product has no field for, so that a conversion loses nothing: ``layer_keys`` of the layer's level (the
    top level of a flat file), ``eagle_keys`` of ``eagle_config``, ``nested_keys`` of the top level of a nested file.
    """

    dtype: Optional[str] = None
    verifier: Optional[str] = None
    verifier_architectures: Tuple[str, ...] = ()
    speculative_tokens: Optional[int] = None
    rope_parameters: bool = False
    model_type: Optional[str] = None
    layer_keys: Mapping[str, Any] = field(default_factory=dict)
    eagle_keys: Mapping[str, Any] = field(default_factory=dict)
    nested_keys: Mapping[str, Any] = field(default_factory=dict)


def drafter_for(target: Mapping[str, Any], aux_layers: Tuple[int, ...], draft_vocab_size: int) -> DrafterConfig:
    """The default drafter of a target: its width, heads and MLP in one layer, its rotary embedding and positions.

    ``target`` is the target's config.json; a wrapped text model is read through ``text_config``. Raises KeyError where
    the config lacks a size.
    """
    facts = Target.of(target)
    text = facts.text
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
        rope=facts.rope,
        bos_token_id=text.get("bos_token_id", target.get("bos_token_id")),
        eos_token_id=text.get("eos_token_id", target.get("eos_token_id")),
    )
