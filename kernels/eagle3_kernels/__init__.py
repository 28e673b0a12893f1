"""The drafter's hot paths on a host, each beside its plain torch reference."""

from __future__ import annotations

from eagle3_kernels.attention import merged_attention, ttt_attention, ttt_attention_reference
from eagle3_kernels.draft_loss import LOSSES, Teacher, draft_loss, draft_loss_reference, finish_logits

__all__ = [
    "LOSSES",
    "Teacher",
    "draft_loss",
    "draft_loss_reference",
    "finish_logits",
    "merged_attention",
    "ttt_attention",
    "ttt_attention_reference",
]
