"""What a training refuses, and what it has doubts about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagle3_backend.drafter.checks.vocabulary import map_findings
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.pipeline.rows import MASK_COVERS_PROMPTS
from eagle3_backend.pipeline.run_folders import FEW_SAMPLES
from eagle3_backend.stages.store import Stamp
from eagle3_backend.stages.target_head import TargetHead
from eagle3_backend.stages.training_data import Data
from eagle3_backend.stages.training_rows import Conversation
from eagle3_backend.stages.vocab import read_maps

LONG_WARMUP = 0.5
"""Share of all steps in which the learning rate rises, from which on the rise is most of the training."""
STALE_COVERAGE = 0.05
"""Difference in the share of tokens that a draft vocabulary holds, from which on it is of other conversations."""


def input_faults(target: TargetHead, stamp: Stamp, vocab: Path, data: Data) -> Iterator[Finding]:
    """States and draft vocabulary that belong to another target, or to other conversations, than this training."""
    # A directory may have moved since: which model it holds is told by the revision and the hashes.
    named = {} if Path(target.facts["model"]).is_absolute() else {"target": target.facts["model"]}
    facts = {**target.facts, **named}
    for name in ("target", "revision", "hidden_size", "tokenizer_hash", "template_hash"):
        wanted, actual = facts.get(name), getattr(stamp, name)
        if name in facts and wanted != actual:
            yield _foreign("store_stamp_mismatch", "hidden states", name, wanted, actual, "Run extract again.")
    d2t, t2d = read_maps(vocab)
    if len(t2d) != len(target.head):
        words = ("draft vocabulary", "size of the target's vocabulary")
        yield _foreign("vocab_map_stale", *words, len(target.head), len(t2d), "Run vocab again.")
        return
    yield from map_findings(d2t.tolist(), t2d.tolist(), len(t2d))
    recorded = (read_manifest(vocab) or {}).get("summary", {}).get("coverage", {}).get("train")
    written = torch.cat([row.stored.token_ids[row.stored.loss_mask.bool()] for row in data.conversations])
    found = float(t2d[written].double().mean())
    if recorded is not None and abs(found - recorded) > STALE_COVERAGE:
        words = ("draft vocabulary", "share of the training tokens that it holds")
        yield _foreign("vocab_map_stale", *words, recorded, round(found, 4), "Run vocab again for these conversations.")


def _foreign(code: str, what: str, name: str, wanted: Any, actual: Any, fix: str) -> Finding:
    message = f"The {what} were made for something else: {name} is {actual} instead of {wanted}."
    return error(code, message, path=name, expected=wanted, actual=actual, fix=fix)


def doubts(facts: dict[str, Any], parameters: TrainParameters) -> Iterator[Finding]:
    """What makes a training of this data (`shares`) and these parameters prove little."""
    density, count = facts["mask_density"], facts["conversations"]
    if density > MASK_COVERS_PROMPTS:
        message = f"{density:.0%} of all tokens are marked as written by the target: the mask covers prompts too."
        yield error("loss_mask_covers_prompt", message, path="loss_mask", actual=density)
    if parameters.warmup >= LONG_WARMUP:
        yield warning(
            "warmup_dominates",
            f"The learning rate rises during {parameters.warmup:.0%} of all steps; most of the training is warm-up.",
            path="stages.train.warmup",
            expected=f"< {LONG_WARMUP}",
            actual=parameters.warmup,
            fix="Set train.warmup to a few percent.",
        )
    if count < FEW_SAMPLES:
        yield warning(
            "training_data_small",
            f"The drafter learns from {count} conversations; sets below {FEW_SAMPLES} stay low.",
            path="store",
            expected=FEW_SAMPLES,
            actual=count,
            fix="Add prompts; the ones that are answered already are kept.",
        )


def check_loss(value: float, losses: Tensor, conversations: Sequence[Conversation], step: int) -> None:
    """Stop at once on a loss or a gradient ``value`` that is not finite, and on ``losses`` [K] of exactly zero."""
    if not math.isfinite(value):
        rows = [entry.stored.index for entry in conversations]
        message = f"Loss or gradient norm is {value} at step {step}; conversations {rows}."
        fix = "Resume with a lower learning rate, or look at these conversations in the store."
        raise FindingError(error("loss_nan", message, path=f"step {step}", actual=str(value), fix=fix))
    if not bool(losses[0]):
        message = f"The loss is exactly zero at step {step}: no row is supervised or the teacher is the drafter."
        raise FindingError(error("loss_zero_constant", message, path=f"step {step}", actual=0.0))
