"""One step in EAGLE's manner, written plainly: all scores, all logits, one unrolled step after the other, by autograd.

The drafter's weights and layers are ours; what differs is how attention and loss are computed. It computes no more
than it needs for that: the teacher only over the draft vocabulary, the head frozen.
"""

from __future__ import annotations

import torch
from peers.ours import drafter_of
from torch import Tensor
from training_inputs import EPS, STEPS, Data, Shapes, Weights


class Step:
    """The gradients of one step's loss, mean over the rows of each of its unrolled steps."""

    def __init__(self, shapes: Shapes, given: Weights) -> None:
        self.model = drafter_of(shapes, given)
        self.teacher_head = given.teacher_head

    def gradients(self, given: Data) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = self._loss(given)
        loss.backward()

    def _loss(self, given: Data) -> Tensor:
        drafter, layer, count = self.model, self.model.midlayer, len(given.tokens)
        with torch.no_grad():
            states = torch.nn.functional.rms_norm(given.last.float(), given.last.shape[-1:], eps=EPS)
            goal = torch.softmax((states.bfloat16() @ self.teacher_head.T).float(), -1)
        hidden = drafter.fc(given.aux)
        places, total = torch.arange(count), torch.zeros(())
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for step in range(STEPS):
            embedding = torch.nn.functional.embedding(given.of_step(step), drafter.embedding).float()
            inputs, residual = layer.inputs(embedding, hidden.float())
            query, key, value = self._projected(inputs, places + step)
            keys.append(key)
            values.append(value)
            attended = full_scores(query, keys, values)
            hidden = layer.outputs(residual, attended.transpose(0, 1).flatten(1))
            logits = drafter.lm_head(drafter.norm(hidden))
            shifted = torch.nn.functional.pad(goal[step:], (0, 0, 0, step))
            losses = -(shifted * torch.log_softmax(logits.float(), -1)).sum(-1)
            total = total + losses.sum() / (count - step)
        return total

    def _projected(self, inputs: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value [heads, rows, size] of a step, keys and values repeated for each query head."""
        attention, turn = self.model.midlayer.self_attn, self.model.rotary
        group = attention.heads // attention.kv_heads
        query = turn(attention.q_proj(inputs).unflatten(-1, (attention.heads, -1)), positions)
        key = turn(attention.k_proj(inputs).unflatten(-1, (attention.kv_heads, -1)), positions)
        value = attention.v_proj(inputs).unflatten(-1, (attention.kv_heads, -1))
        key, value = (entry.repeat_interleave(group, 1) for entry in (key, value))
        return query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)


def full_scores(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """All scores at once, the own keys' as further columns, softmax in float32."""
    rows, scale = query.shape[-2], query.shape[-1] ** -0.5
    scores = (query @ keys[0].transpose(-1, -2)) * scale
    scores = scores + torch.full((rows, rows), float("-inf"), dtype=scores.dtype).triu(1)
    for own in keys[1:]:
        scores = torch.cat((scores, (query * own).sum(-1, keepdim=True).to(scores.dtype) * scale), -1)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype)
    output = weights[..., :rows] @ values[0]
    for step, own in enumerate(values[1:]):
        output = output + weights[..., rows + step, None] * own
    return output
