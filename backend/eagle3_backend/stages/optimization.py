"""How the drafter's weights move: Muon on the layer's matrices and AdamW on the rest, or AdamW on all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from eagle3_backend.pipeline.parameters import TrainParameters

GAIN_RATE = 10.0
"""Learning rate of the norms' gains beside that of the matrices under Muon. There an update has the size of 0.2 rates
and a first weight that of 0.02; a gain begins at 1 and moves by one rate: so both move by the same share of themselves.
"""
MOMENTUM = 0.9
"""Of Muon. With its usual 0.95 a gradient still counts after twenty steps, and a training here may have a hundred."""
FINAL_SHARE = 0.0
"""Share of the peak learning rate that is left at the end of the cosine or the line."""


def build_optimizers(drafter: nn.Module, parameters: TrainParameters) -> dict[str, torch.optim.Optimizer]:
    """Muon (5 Newton-Schulz steps, update scaled to AdamW's size) for 2-D weights but the head.

    The head, when it is trained, and the norms go to AdamW; norms without weight decay and at `GAIN_RATE`. With
    ``adamw`` the matrices go there too, all at one rate.
    """
    named = [(name, weight) for name, weight in drafter.named_parameters() if weight.requires_grad]
    matrices = [weight for name, weight in named if weight.dim() == 2 and name != "lm_head.weight"]
    head = [weight for name, weight in named if name == "lm_head.weight"]
    norms = [weight for _, weight in named if weight.dim() == 1]
    decay = parameters.weight_decay
    muon = parameters.optimizer == "muon"
    decayed = head if muon else matrices + head
    gains = {"params": norms, "weight_decay": 0.0, "share": GAIN_RATE if muon else 1.0}
    adamw = torch.optim.AdamW([gains, {"params": decayed, "weight_decay": decay}], betas=(0.9, 0.95))
    if not muon:
        return {"adamw": adamw}
    return {
        "muon": torch.optim.Muon(matrices, weight_decay=decay, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"),
        "adamw": adamw,
    }


def set_rate(optimizers: Mapping[str, torch.optim.Optimizer], rate: float) -> None:
    """Let every group of weights take its share of the learning rate."""
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("share", 1.0)


def schedule(step: int, total: int, warmup: float, kind: str = "cosine") -> float:
    """Share of the peak learning rate at ``step`` of ``total``.

    Linear over the first ``warmup`` of it, then down along a ``cosine`` or a ``linear`` slope, or ``constant``.
    """
    rise = max(1, round(warmup * total))
    if step < rise:
        return (step + 1) / rise
    if kind == "constant":
        return 1.0
    done = (step - rise) / max(1, total - rise)
    left = 1 - done if kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return FINAL_SHARE + (1 - FINAL_SHARE) * left
