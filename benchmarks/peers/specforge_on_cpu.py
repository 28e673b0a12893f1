"""All that is changed in SpecForge 0.2.0 to let its offline trainer run on a CPU; on a GPU nothing of this is used.

Its loss is a Triton kernel that knows GPUs only. The same sum stands here in plain torch: soft labels against the
log-softmax in float32, rows outside the mask left out of the sum and counted in the mean, as the kernel does.
"""

from __future__ import annotations

import torch
from specforge.algorithms.eagle3 import model
from torch import Tensor


class PlainLoss:
    """Stands where the kernel's autograd function stood."""

    @staticmethod
    def apply(logits: Tensor, target: Tensor, position_mask: Tensor) -> Tensor:
        losses = -(target * torch.log_softmax(logits.float(), -1)).sum(-1, keepdim=True)
        return (losses * position_mask.bool()).mean()


model.LogSoftmaxLoss = PlainLoss
