"""One step as the training stage does it: its own drafter, its own loss, one document."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from training_inputs import AUX, EPS, STEPS, THETA, Data, Shapes, Weights

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.drafter_model import Drafter, Rows, load_drafter
from eagle3_backend.stages.target_head import TargetHead
from eagle3_backend.stages.train import Trainer
from eagle3_backend.stages.training_rows import Batch


def drafter_of(shapes: Shapes, given: Weights) -> Drafter:
    """The drafter with the given weights, its head frozen."""
    config = DrafterConfig(
        hidden_size=shapes.hidden,
        target_hidden_size=shapes.hidden,
        intermediate_size=shapes.intermediate,
        heads=shapes.heads,
        kv_heads=shapes.kv_heads,
        head_dim=shapes.head_dim,
        vocab_size=shapes.vocabulary,
        draft_vocab_size=shapes.draft_vocabulary,
        aux_layers=AUX,
        rms_norm_eps=EPS,
        max_position_embeddings=1 << 18,
        rope=Rope(THETA),
    )
    drafter = load_drafter(config, given.embedding, given.drafter)
    drafter.lm_head.weight.requires_grad_(False)
    return drafter


class Step:
    """The gradients of one step's loss, mean over the rows of each of its unrolled steps."""

    def __init__(self, shapes: Shapes, given: Weights) -> None:
        self.model = drafter_of(shapes, given)
        target = TargetHead({"rms_norm_eps": EPS}, {}, torch.ones(shapes.hidden), given.teacher_head, given.embedding)
        # What the trainer's loss reads of a trainer.
        self.trainer = SimpleNamespace(
            dtype=torch.bfloat16,
            parameters=TrainParameters(),
            drafter=self.model,
            frozen_head=given.teacher_head,
            kept_head=given.teacher_head,
            target=target,
        )

    def gradients(self, given: Data) -> None:
        count = len(given.tokens)
        places = torch.arange(count)
        tokens = torch.stack([given.of_step(step) for step in range(STEPS)])
        rows = Rows(given.aux, given.tokens, places, (count,), places, tokens)
        left = count - torch.arange(STEPS)
        batch = Batch(rows, given.last, places < left[:, None], (count,), ((0, count),))
        Trainer.forward(self.trainer, batch, 1.0 / left, torch.ones(count))
