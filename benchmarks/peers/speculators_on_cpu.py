"""All that is changed in speculators 0.9.0 to let its trainer run on a CPU; on a GPU nothing of this is used.

Where there is no accelerator the trainer still puts its model on device 0 and computes under CUDA's autocast, its
checkpoints are loaded to ``cuda:0``, and its step timer waits for an accelerator. Each is pointed at the CPU here. Its
own options choose attention and loss without a GPU's kernels (``--draft-attn-impl sdpa --loss-implementation eager``).
"""

from __future__ import annotations

from typing import Any

import torch
from speculators.train import checkpointer, trainer

_setup = trainer.Trainer.setup_trainer


def _on_cpu(self: Any) -> None:
    self.local_rank = self.device_type = "cpu"
    _setup(self)


trainer.Trainer.setup_trainer = _on_cpu
checkpointer.get_current_device = lambda: "cpu"
torch.accelerator.synchronize = lambda *_: None
