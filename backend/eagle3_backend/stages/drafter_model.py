"""The EAGLE-3 drafter: one Llama layer over the target's aux states, trained by unrolling its own drafting.

Parameter names are those of the flat layout on disk. Formulas: EAGLE-3 (arXiv 2503.01840); in the notation of the
training stage, x are tokens, g[j] the concatenated aux states at position j.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_kernels import ttt_attention


@dataclass(frozen=True)
class Rows:
    """Rows of several conversations, packed without padding; documents do not see each other.

    Row j of a conversation has the hidden state g[j] and the start token x[j+1]. All N rows give keys and values at
    step 0; the M ``used`` ones draft.

    ``aux`` [N, A*Ht], ``start_tokens`` [N], ``positions`` [N] (j), ``documents``: how many rows each conversation has;
    ``used`` [M]: indices into N; ``tokens`` [K, M]: the token that step k takes in, x[j+1+k].
    """

    aux: Tensor
    start_tokens: Tensor
    positions: Tensor
    documents: tuple[int, ...]
    used: Tensor
    tokens: Tensor


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.rms_norm(states, states.shape[-1:], self.weight.to(states.dtype), self.eps)


class Rotary(nn.Module):
    """Rotary embedding with the target's base and scaling (transformers' own frequencies)."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        exponents = torch.arange(0, config.head_dim, 2).double() / config.head_dim
        frequencies, self.factor = 1.0 / config.rope.theta**exponents, 1.0
        if config.rope.scaling:
            llama = LlamaConfig(
                hidden_size=config.hidden_size,
                num_attention_heads=config.heads,
                head_dim=config.head_dim,
                max_position_embeddings=config.max_position_embeddings,
                rope_parameters=config.rope.parameters,
            )
            frequencies, self.factor = ROPE_INIT_FUNCTIONS[config.rope.kind](llama, None)
        self.register_buffer("frequencies", frequencies.double(), persistent=False)

    def forward(self, states: Tensor, positions: Tensor) -> Tensor:
        """Rotate ``states`` [rows, heads, head size] to ``positions`` [rows]."""
        cos, sin = self.turn(positions, states.dtype)
        left, right = states.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def turn(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [rows, 1, half a head's size] of ``positions`` [rows], times the scaling's factor."""
        angles = (positions.double()[:, None] * self.frequencies)[:, None]
        return (angles.cos() * self.factor).to(dtype), (angles.sin() * self.factor).to(dtype)


class Attention(nn.Module):
    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        inputs = 2 * config.hidden_size
        self.q_proj = nn.Linear(inputs, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(inputs, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(inputs, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)


class MLP(nn.Module):
    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(states)) * self.up_proj(states))


class DrafterLayer(nn.Module):
    """The layer whose attention reads ``cat(norm(embedding), norm(hidden))`` and whose residual is the hidden state.

    With ``norm_before_residual`` the residual is the normed hidden state.
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.norm_before_residual = config.norm_before_residual
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def inputs(self, embedding: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """What attention reads, and the residual."""
        normed = self.hidden_norm(hidden)
        residual = normed if self.norm_before_residual else hidden
        return torch.cat([self.input_layernorm(embedding), normed], -1), residual

    def outputs(self, residual: Tensor, attended: Tensor) -> Tensor:
        hidden = residual + self.self_attn.o_proj(attended)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Drafter(nn.Module):
    """The whole drafter; the embedding is the target's, frozen, and not part of the state.

    ``embedding`` is [V, H]. Norm flags as vLLM's Llama drafter applies them: ``norm_before_fc`` norms all aux states
    together, ``fc_norm`` each one on its own, ``norm_output`` hands the next step the state after the final norm.

    ``aux_scale`` [A*Ht] divides the aux states before fc. Streams of a target differ in size by orders of magnitude and
    hold single massive channels, which no optimizer's step suits at once. The drafter that is served has no such scale:
    `served_weights` folds it into fc.
    """

    def __init__(self, config: DrafterConfig, embedding: Tensor) -> None:
        super().__init__()
        self.config = config
        inputs = len(config.aux_layers) * config.target_hidden_size
        self.register_buffer("aux_scale", torch.ones(inputs))
        self.input_norm = RMSNorm(inputs, config.rms_norm_eps) if config.norm_before_fc else None
        norms = (RMSNorm(config.target_hidden_size, config.rms_norm_eps) for _ in config.aux_layers)
        self.fc_norm = nn.ModuleList(norms) if config.fc_norm else None
        self.fc = nn.Linear(inputs, config.hidden_size, bias=False)
        self.midlayer = DrafterLayer(config)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.rotary = Rotary(config)
        self.register_buffer("embedding", embedding, persistent=False)

    def forward(self, rows: Rows) -> Tensor:
        """Normed hidden states [K, M, H]: what the head reads at each step of each used row.

        Query (row j, step k) meets the step-0 keys of rows <= j of its document and its own row's keys of steps 1..k;
        its rotary position is j + k.
        """
        layer, attention = self.midlayer, self.midlayer.self_attn
        hidden = self.fc(self.normed_aux(rows.aux) / self.aux_scale).to(self.norm.weight.dtype)
        inputs, residual = layer.inputs(self._embed(rows.start_tokens), hidden)
        key, value = self._keys_values(inputs, rows.positions)
        key, value = (entry.transpose(0, 1)[None] for entry in (key, value))
        residual, inputs = residual[rows.used], inputs[rows.used]
        positions = rows.positions[rows.used]
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        outputs = []
        for step in range(len(rows.tokens)):
            if step:
                inputs, residual = layer.inputs(self._embed(rows.tokens[step]), hidden)
                own_key, own_value = self._keys_values(inputs, positions + step)
                own_keys.append(_among_all(own_key, rows))
                own_values.append(_among_all(own_value, rows))
            query = self.rotary(attention.q_proj(inputs).unflatten(-1, (attention.heads, -1)), positions + step)
            queries = _among_all(query, rows)
            attended = ttt_attention(queries, key, value, own_keys, own_values, documents=rows.documents)
            hidden = layer.outputs(residual, attended[0].transpose(0, 1)[rows.used].flatten(1))
            outputs.append(self.norm(hidden))
            if self.config.norm_output:
                hidden = outputs[-1]
        return torch.stack(outputs)

    def normed_aux(self, aux: Tensor) -> Tensor:
        """The aux states [N, A*Ht] through the norms that lie before fc, in fc's dtype."""
        states = aux.to(self.fc.weight.dtype)
        if self.input_norm is not None:
            states = self.input_norm(states)
        if self.fc_norm is not None:
            chunks = states.chunk(len(self.fc_norm), -1)
            states = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)], -1)
        return states

    def served_weights(self) -> dict[str, Tensor]:
        """Weights by flat name as an engine applies them: fc takes the aux states as they come."""
        weights = {name: weight.detach() for name, weight in self.named_parameters()}
        return {**weights, "fc.weight": weights["fc.weight"] / self.aux_scale}

    def _embed(self, tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens, self.embedding).to(self.norm.weight.dtype)

    def _keys_values(self, inputs: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        attention = self.midlayer.self_attn
        key = self.rotary(attention.k_proj(inputs).unflatten(-1, (attention.kv_heads, -1)), positions)
        return key, attention.v_proj(inputs).unflatten(-1, (attention.kv_heads, -1))


def _among_all(states: Tensor, rows: Rows) -> Tensor:
    """States [M, heads, size] of the used rows as [1, heads, N, size], zeros at the others."""
    everywhere = states.new_zeros(len(rows.positions), *states.shape[1:]).index_copy(0, rows.used, states)
    return everywhere.transpose(0, 1)[None]


def load_drafter(config: DrafterConfig, embedding: Tensor, tensors: Mapping[str, Tensor]) -> Drafter:
    """A drafter with served weights (flat names). Raises RuntimeError when they do not fit the config."""
    drafter = Drafter(config, embedding)
    drafter.load_state_dict({**tensors, "aux_scale": drafter.aux_scale})
    return drafter
