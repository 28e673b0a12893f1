"""First weights of a drafter: the best linear drafter that its training set gives, in closed form.

The drafter's state is meant to be the target's last hidden state, which the target's own norm and head can read. So fc
starts as the least-squares map from aux states to that state at the same position, and the layer as the least-squares
map from (state, next token's embedding) to the state one position on. Such a linear drafter is right on about 30 % of
the rows before the first step of training, and its steps feed each other what they expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.target_head import TargetHead
from eagle3_backend.stages.training_rows import Conversation

FIT_ROWS = 32768
"""Rows that the least-squares maps are fitted on, at most."""
STATE_RIDGE, LAYER_RIDGE = 1e-5, 1e-3
"""Ridge of the two maps, relative to the mean square of the inputs."""
SELF_SCORE = 16.0
"""Attention score of a row with itself at the start; e^16 outweighs the other rows of any document."""
DEVIATION = 0.02
"""Standard deviation of the weights that no map sets."""


def initialise(
    drafter: Drafter, target: TargetHead, target_ids: Tensor, conversations: Sequence[Conversation], seed: int
) -> None:
    """Set all weights and the scale of the aux channels, their root mean square over the rows that are used.

    ``target_ids`` [DV] are the target ids that the draft vocabulary keeps. A drafter of another width than its
    target cannot read with the target's head and starts from random weights.
    """
    generator = torch.Generator().manual_seed(seed)
    layer = drafter.midlayer
    with torch.no_grad():
        for parameter in drafter.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, DEVIATION, generator=generator)
        sample = scale_aux(drafter, conversations)
        if drafter.config.hidden_size != drafter.config.target_hidden_size:
            return
        drafter.lm_head.weight.copy_(target.head[target_ids])
        drafter.norm.weight.copy_(target.norm)
        layer.mlp.down_proj.weight.zero_()
        state, change = _linear_maps(drafter, sample)
        drafter.fc.weight.copy_(state.T)
        _look_at_itself(drafter, generator)
        _write_values(drafter, change)


@dataclass(frozen=True)
class Sample:
    """Rows to fit on: aux states as fc meets them [N, A*Ht], last states [N, Ht] at the row and one position on, start
    tokens [N]."""

    aux: Tensor
    here: Tensor
    there: Tensor
    tokens: Tensor


def scale_aux(drafter: Drafter, conversations: Sequence[Conversation]) -> Sample:
    """Set the scale of the aux channels to their root mean square over the used rows; the rows that were looked at."""
    sample = _sample(drafter, conversations)
    drafter.aux_scale.copy_(sample.aux.square().mean(0).sqrt().clamp(min=1e-6))
    return sample


def _sample(drafter: Drafter, conversations: Sequence[Conversation]) -> Sample:
    """Every n-th used row, so that there are at most `FIT_ROWS`, float32."""
    stride = -(-sum(len(entry.used) for entry in conversations) // FIT_ROWS)
    picked = [(entry.stored, entry.used[::stride]) for entry in conversations]
    return Sample(
        aux=drafter.normed_aux(torch.cat([row.aux[used] for row, used in picked]).float()),
        here=torch.cat([row.last[used] for row, used in picked]).float(),
        there=torch.cat([row.last[used + 1] for row, used in picked]).float(),
        tokens=torch.cat([row.token_ids[used + 1] for row, used in picked]),
    )


def _linear_maps(drafter: Drafter, sample: Sample) -> tuple[Tensor, Tensor]:
    """The maps scaled aux -> state [A*Ht, H] and layer input -> change of state [2H, H].

    A state is the target's last hidden state at unit mean square: the norm before the head makes it so anyway.
    """
    aux = sample.aux / drafter.aux_scale
    state = _ridge(aux, _unit(sample.here), STATE_RIDGE)
    hidden = aux @ state
    inputs = torch.cat([_unit(drafter.embedding[sample.tokens].float()), _unit(hidden)], -1)
    return state, _ridge(inputs, _unit(sample.there) - hidden, LAYER_RIDGE)


def _look_at_itself(drafter: Drafter, generator: torch.Generator) -> None:
    """Let the first query head of each key head find its own row: both project the token's embedding alike.

    The projection leaves out the direction that all embeddings share, which tells rows apart from nothing. The other
    query heads stay free for the context.
    """
    attention, width = drafter.midlayer.self_attn, drafter.config.hidden_size
    common = _unit(drafter.embedding.float()).mean(0)
    size, group = attention.head_dim, attention.heads // attention.kv_heads
    scale = (SELF_SCORE / size**0.5) ** 0.5
    for head in range(attention.kv_heads):
        directions = torch.randn(size + 1, width, generator=generator)
        directions[0] = common
        basis = torch.linalg.qr(directions.T).Q[:, 1:].T * scale
        attention.k_proj.weight[head * size : (head + 1) * size, :width] = basis
        attention.q_proj.weight[head * group * size : (head * group + 1) * size, :width] = basis


def _write_values(drafter: Drafter, change: Tensor) -> None:
    """Give the values of those heads the map ``change`` [2H, H], as much of it as their rank holds."""
    attention = drafter.midlayer.self_attn
    size, group = attention.head_dim, attention.heads // attention.kv_heads
    left, singular, right = torch.linalg.svd(change, full_matrices=False)
    rank = min(attention.kv_heads * size, len(singular))
    root = singular[:rank].sqrt()
    attention.v_proj.weight.zero_()[:rank] = (left[:, :rank] * root).T
    attention.o_proj.weight.zero_()
    for head in range(attention.kv_heads):
        columns = slice(head * size, min((head + 1) * size, rank))
        start = head * group * size
        attention.o_proj.weight[:, start : start + columns.stop - columns.start] = (
            right[columns] * root[columns, None]
        ).T


def _ridge(inputs: Tensor, outputs: Tensor, ridge: float) -> Tensor:
    gram = inputs.T @ inputs
    gram.diagonal().add_(ridge * gram.diagonal().mean())
    return torch.linalg.solve(gram.double(), (inputs.T @ outputs).double()).float()


def _unit(states: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(states, states.shape[-1:])
