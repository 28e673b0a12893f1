"""Whole drafters in small, made without the code under test: configs of either layout and files with tiny weights."""

from __future__ import annotations

import copy
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle3_backend.drafter.aux_layers import for_sglang
from eagle3_backend.drafter.config import QWEN3, DrafterConfig, Packaging
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.drafter.layouts import flat_config, nested_config
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.drafter.tensorfile import header_bytes, size_of

WEIGHTS = "model.safetensors"
CODES = {"int64": "q", "int32": "i", "bool": "?", "uint8": "B"}

TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "vocab_size": 96,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}

DRAFTER = DrafterConfig(
    hidden_size=32,
    target_hidden_size=32,
    intermediate_size=48,
    heads=4,
    kv_heads=2,
    head_dim=8,
    vocab_size=96,
    draft_vocab_size=40,
    aux_layers=(2, 6, 9),
    rms_norm_eps=1e-5,
    max_position_embeddings=512,
    rope=Rope(),
)
"""A drafter for `TARGET` that both engines serve right."""


class MemoryFolder:
    """A directory that is not there."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.path = "drafter"

    def names(self) -> list[str]:
        return sorted(self.files)

    def size(self, name: str) -> int:
        return len(self.files[name])

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self.files[name][offset : offset + length]


@dataclass
class Checkpoint:
    """A drafter's directory in memory: its config, its tensors as {name: (dtype, shape)}, and the values of the maps.

    ``layer`` is the level of the config that holds the layer's sizes. Values that are not given are zero.
    """

    config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    values: dict[str, list[int]] = field(default_factory=dict)

    @property
    def layer(self) -> dict[str, Any]:
        return self.config.get("transformer_layer_config", self.config)

    @property
    def nested(self) -> bool:
        return "transformer_layer_config" in self.config

    @property
    def prefix(self) -> str:
        return "layers.0." if self.nested else "midlayer."

    def copy(self) -> Checkpoint:
        return copy.deepcopy(self)

    def file(self) -> bytes:
        """The safetensors file."""
        data = [header_bytes(self.tensors, {"format": "pt"})]
        for name, (dtype, shape) in self.tensors.items():
            if name in self.values and dtype in CODES:
                data.append(packed(dtype, self.values[name]))
            else:
                data.append(bytes(size_of(dtype, shape)))
        return b"".join(data)

    def inventory(self) -> Inventory:
        return read_inventory(MemoryFolder({WEIGHTS: self.file()}))

    def write(self, directory: Path) -> None:
        """Put it on disk."""
        import json

        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        (directory / WEIGHTS).write_bytes(self.file())


def packed(dtype: str, values: list[int]) -> bytes:
    """Values as a safetensors file holds them."""
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def checkpoint(
    drafter: DrafterConfig = DRAFTER, layout: str = "flat", target: dict[str, Any] | None = None
) -> Checkpoint:
    """The directory of a drafter, its config written by the product."""
    target = target or TARGET
    packaging = Packaging("bfloat16", "org/target", tuple(target["architectures"]), speculative_tokens=3)
    if layout == "nested":
        config = nested_config(drafter, packaging)
    else:
        architecture, layers = target["architectures"][0], target["num_hidden_layers"]
        config = flat_config(drafter, packaging, for_sglang(drafter.aux_layers, architecture, layers))
    prefix = "layers.0." if layout == "nested" else "midlayer."
    tensors = {name.replace("midlayer.", prefix): ("bfloat16", shape) for name, shape in shapes(drafter).items()}
    if drafter.draft_vocab_size == drafter.vocab_size:
        return Checkpoint(config, tensors)
    d2t, t2d = maps(drafter.draft_vocab_size, drafter.vocab_size)
    tensors.update(d2t=("int64", (len(d2t),)), t2d=("bool", (len(t2d),)))
    return Checkpoint(config, tensors, {"d2t": d2t, "t2d": t2d})


def shapes(drafter: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Weights by flat name; an embedding only where the drafter needs its own."""
    width, inner, streams = drafter.hidden_size, drafter.intermediate_size, drafter.aux_count
    queries, keys = drafter.heads * drafter.head_dim, drafter.kv_heads * drafter.head_dim
    found: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, streams * drafter.target_hidden_size),
        "midlayer.hidden_norm.weight": (width,),
        "midlayer.input_layernorm.weight": (width,),
        "midlayer.self_attn.q_proj.weight": (queries, 2 * width),
        "midlayer.self_attn.k_proj.weight": (keys, 2 * width),
        "midlayer.self_attn.v_proj.weight": (keys, 2 * width),
        "midlayer.self_attn.o_proj.weight": (width, queries),
        "midlayer.post_attention_layernorm.weight": (width,),
        "midlayer.mlp.gate_proj.weight": (inner, width),
        "midlayer.mlp.up_proj.weight": (inner, width),
        "midlayer.mlp.down_proj.weight": (width, inner),
        "norm.weight": (width,),
        "lm_head.weight": (drafter.draft_vocab_size, width),
    }
    if drafter.draft_class == QWEN3:
        found["midlayer.self_attn.q_norm.weight"] = found["midlayer.self_attn.k_norm.weight"] = (drafter.head_dim,)
    if drafter.norm_before_fc:
        found["input_norm.weight"] = (streams * drafter.target_hidden_size,)
    if drafter.fc_norm:
        found.update({f"fc_norm.{index}.weight": (drafter.target_hidden_size,) for index in range(streams)})
    if drafter.hidden_size != drafter.target_hidden_size:
        found["embed_tokens.weight"] = (drafter.vocab_size, width)
    return found


def maps(draft_size: int, size: int) -> tuple[list[int], list[int]]:
    """``d2t`` and ``t2d`` of a draft vocabulary that keeps a run at the start and a run at the end."""
    head = draft_size // 2
    kept = [*range(head), *range(size - draft_size + head, size)]
    flags = [0] * size
    for target in kept:
        flags[target] = 1
    return [target - draft for draft, target in enumerate(kept)], flags
