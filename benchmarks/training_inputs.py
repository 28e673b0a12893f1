"""What a training step of rows 5 and 17 is given: one document, all of whose rows are trained on, and first weights.

The same seed gives every implementation the same; nothing here needs memory under FakeTensorMode.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPS, THETA, AUX, STEPS = 1e-5, 10000.0, (2, 15, 27), 7


@dataclass(frozen=True)
class Shapes:
    """Sizes of target and drafter, which are equal here."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    draft_vocabulary: int

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the drafter's weights under their flat names."""
        width, queries, keys = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        matrices = {
            "fc": (width, len(AUX) * width),
            "midlayer.self_attn.q_proj": (queries, 2 * width),
            "midlayer.self_attn.k_proj": (keys, 2 * width),
            "midlayer.self_attn.v_proj": (keys, 2 * width),
            "midlayer.self_attn.o_proj": (width, queries),
            "midlayer.mlp.gate_proj": (self.intermediate, width),
            "midlayer.mlp.up_proj": (self.intermediate, width),
            "midlayer.mlp.down_proj": (width, self.intermediate),
            "lm_head": (self.draft_vocabulary, width),
        }
        norms = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
        vectors = {name: (width,) for name in ("norm", *(f"midlayer.{norm}" for norm in norms))}
        return {f"{name}.weight": shape for name, shape in {**matrices, **vectors}.items()}


SMOL = Shapes(576, 1536, 9, 3, 64, 49152, 16384)
KIMI = Shapes(7168, 18432, 64, 8, 128, 163840, 32000)


@dataclass(frozen=True)
class Weights:
    """``drafter``: float32 by flat names, its head being ``teacher_head`` [DV, H]; ``embedding`` [V, H] bf16."""

    drafter: dict[str, Tensor]
    embedding: Tensor
    teacher_head: Tensor


@dataclass(frozen=True)
class Data:
    """``aux`` [T, A*H] and ``last`` [T, H] bf16, row j of ``last`` judging row j at step 0; ``tokens`` [T]: the start
    tokens; step k of row j takes in token j + k."""

    aux: Tensor
    last: Tensor
    tokens: Tensor

    def of_step(self, step: int) -> Tensor:
        """The tokens of a step, zeros where the document has ended."""
        return torch.cat([self.tokens[step:], self.tokens.new_zeros(step)])


def weights(shapes: Shapes) -> Weights:
    torch.manual_seed(0)
    made = {
        name: torch.randn(shape) / shape[-1] ** 0.5 if len(shape) == 2 else torch.ones(shape)
        for name, shape in shapes.weights().items()
    }
    embedding = torch.randn(shapes.vocabulary, shapes.hidden).bfloat16()
    head = (made["lm_head.weight"] * 2.5).bfloat16()
    return Weights({**made, "lm_head.weight": head.float()}, embedding, head)


def data(shapes: Shapes, rows: int) -> Data:
    torch.manual_seed(1)
    return Data(
        torch.randn(rows, len(AUX) * shapes.hidden).bfloat16(),
        torch.randn(rows, shapes.hidden).bfloat16(),
        torch.randint(0, shapes.vocabulary, (rows,)),
    )
