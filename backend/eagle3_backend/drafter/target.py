"""The facts of a target model that decide how a drafter for it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from eagle3_backend.drafter.rope import Rope, rope_of
from eagle3_backend.findings import FindingError, error


@dataclass(frozen=True)
class Target:
    """What of a target's config.json concerns a drafter; None where the file does not say.

    ``text`` is the text model's own level (``text_config`` of a wrapped one), ``prefix`` the dotted path to it.
    ``head_dim`` is None for latent attention, whose heads have no single size.
    """

    architecture: str
    text: Mapping[str, Any]
    prefix: str
    layers: Optional[int]
    hidden_size: Optional[int]
    vocab_size: Optional[int]
    head_dim: Optional[int]
    max_position_embeddings: Optional[int]
    rope: Rope

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Target:
        """Read a target's config.json; a wrapped text model is read through ``text_config``.

        Raises FindingError `target_config_invalid` for a rotary embedding that is none.
        """
        wrapped = isinstance(config.get("text_config"), Mapping)
        text: Mapping[str, Any] = config["text_config"] if wrapped else config
        hidden, heads = _size(text, "hidden_size"), _size(text, "num_attention_heads")
        head_dim = _size(text, "head_dim")
        if head_dim is None and hidden and heads and not text.get("kv_lora_rank"):
            head_dim = hidden // heads
        named = config.get("architectures") or text.get("architectures")
        prefix = "text_config." if wrapped else ""
        return cls(
            architecture=str(named[0]) if isinstance(named, list) and named else "",
            text=text,
            prefix=prefix,
            layers=_size(text, "num_hidden_layers"),
            hidden_size=hidden,
            vocab_size=_size(text, "vocab_size"),
            head_dim=head_dim,
            max_position_embeddings=_size(text, "max_position_embeddings"),
            rope=_rope_of(text, prefix),
        )


def _size(text: Mapping[str, Any], key: str) -> Optional[int]:
    value = text.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _rope_of(text: Mapping[str, Any], prefix: str) -> Rope:
    try:
        return rope_of(text)
    except ValueError as problem:
        message = f"The target's rotary embedding cannot be read: {problem}."
        raise FindingError(error("target_config_invalid", message, path=prefix + "rope_parameters")) from problem
