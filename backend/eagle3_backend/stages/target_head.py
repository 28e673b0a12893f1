"""The target in small: what the drafter's teacher needs of it, from the artifact of the `target` stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from eagle3_backend.findings import FindingError, error
from eagle3_kernels import Teacher, finish_logits

CHUNK = 256
"""Rows at a time whose logits over the full vocabulary are made."""


@dataclass(frozen=True)
class TargetHead:
    """Final norm, head and embedding of the target, and its facts.

    ``norm`` [H] is the factor that the target's own norm class applies (its weight, or one plus its weight); ``head``
    and ``embedding`` are [V, H] as stored.
    """

    facts: dict[str, Any]
    config: dict[str, Any]
    norm: Tensor
    head: Tensor
    embedding: Tensor

    def normed(self, last: Tensor) -> Tensor:
        """Last hidden states from before the final norm, normed as the target does it, float32."""
        return torch.nn.functional.rms_norm(last.float(), last.shape[-1:], self.norm, self.facts["rms_norm_eps"])

    def teacher(self, last: Tensor, kept_head: Tensor, kept: Tensor | None = None) -> Teacher:
        """Teacher distributions of pre-norm states [M, H] over the rows of ``kept_head``, in its dtype; ``kept`` [M] is
        their share of the whole distribution, where it is known."""
        return Teacher(self.normed(last).to(kept_head.dtype), kept_head, **self._finish(), kept=kept)

    def choices(self, last: Tensor) -> Tensor:
        """The target's greedy next token over its full vocabulary, [M] int64, for pre-norm states [M, H]."""
        return torch.cat([logits.argmax(-1) for logits in self._logits(last)])

    def judge(self, last: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """`choices`, and the share of each row's distribution that lies on the tokens ``ids``."""
        pairs = [
            (logits.argmax(-1), (logits[:, ids].logsumexp(-1) - logits.logsumexp(-1)).exp())
            for logits in self._logits(last)
        ]
        choices, kept = (torch.cat(column) for column in zip(*pairs, strict=True))
        return choices, kept

    def _logits(self, last: Tensor) -> Iterator[Tensor]:
        """Logits over the full vocabulary, a few rows at a time."""
        for piece in self.normed(last).to(self.head.dtype).split(CHUNK):
            yield finish_logits(piece @ self.head.T, **self._finish())

    def _finish(self) -> dict[str, Any]:
        scale = self.facts.get("logit_scale")
        return {"scale": 1.0 if scale is None else scale, "softcap": self.facts.get("logit_softcap")}


def read_target(directory: Path) -> TargetHead:
    """Read ``facts.json``, ``config.json`` and ``head.safetensors``. Raises FindingError for an unknown norm class."""
    facts = json.loads((directory / "facts.json").read_text(encoding="utf-8"))
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(directory / "head.safetensors")
    kinds = {"rms": 0.0, "rms_plus_one": 1.0}
    if facts["final_norm"] not in kinds:
        message = (
            f"The target's final norm is of kind {facts['final_norm']!r}; the teacher can apply {', '.join(kinds)}."
        )
        raise FindingError(error("target_unsupported", message, path="final_norm", actual=facts["final_norm"]))
    norm = tensors["norm.weight"].float() + kinds[facts["final_norm"]]
    return TargetHead(facts, config, norm, tensors["lm_head.weight"], tensors["embed_tokens.weight"])
