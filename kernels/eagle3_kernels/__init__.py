"""The drafter's hot paths on a host, each beside its plain torch reference."""

from __future__ import annotations

from eagle3_kernels.acceptance import Counts, count, right_rows
from eagle3_kernels.attention import merged_attention, ttt_attention, ttt_attention_reference
from eagle3_kernels.dispatch import kernel_path
from eagle3_kernels.draft_loss import LOSSES, DraftLoss, Teacher, draft_loss, draft_loss_reference, finish_logits
from eagle3_kernels.elementwise import rms_norm, rotate, swiglu
from eagle3_kernels.products import Products

__all__ = [
    "LOSSES",
    "Counts",
    "DraftLoss",
    "Products",
    "Teacher",
    "count",
    "draft_loss",
    "draft_loss_reference",
    "finish_logits",
    "kernel_path",
    "merged_attention",
    "right_rows",
    "rms_norm",
    "rotate",
    "swiglu",
    "ttt_attention",
    "ttt_attention_reference",
]
