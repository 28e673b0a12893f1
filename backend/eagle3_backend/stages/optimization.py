"""How the drafter's weights move: Muon on the layer's matrices and AdamW on the rest, or AdamW on all of them."""

from __future__ import annotations

import math

import torch
from torch import nn

from eagle3_backend.pipeline.parameters import TrainParameters

FINAL_SHARE = 0.0
"""Share of the peak learning rate that is left at the end of the cosine or the line."""


def build_optimizers(drafter: nn.Module, parameters: TrainParameters) -> dict[str, torch.optim.Optimizer]:
    """Muon (momentum 0.95, 5 Newton-Schulz steps, update scaled to AdamW's size) for 2-D weights but the head.

    The head, when it is trained, and the norms go to AdamW; norms without weight decay. With ``adamw`` the matrices go
    there too.
    """
    named = [(name, weight) for name, weight in drafter.named_parameters() if weight.requires_grad]
    matrices = [weight for name, weight in named if weight.dim() == 2 and name != "lm_head.weight"]
    head = [weight for name, weight in named if name == "lm_head.weight"]
    norms = [weight for _, weight in named if weight.dim() == 1]
    decay = parameters.weight_decay
    muon = parameters.optimizer == "muon"
    decayed = head if muon else matrices + head
    adamw = torch.optim.AdamW(
        [{"params": norms, "weight_decay": 0.0}, {"params": decayed, "weight_decay": decay}], betas=(0.9, 0.95)
    )
    if not muon:
        return {"adamw": adamw}
    return {
        "muon": torch.optim.Muon(matrices, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        "adamw": adamw,
    }


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
