"""Acceptance on the hold-out store in plain torch, without any engine: what a server should measure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.engines.statistics import acceptance_interval
from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.stages.acceptance import Walk, walk
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafter_model import Drafter, load_drafter
from eagle3_backend.stages.store import open_store
from eagle3_backend.stages.target_head import TargetHead, read_target
from eagle3_backend.stages.train import CONFIG, WEIGHTS, use_all_cores
from eagle3_backend.stages.training_rows import Conversation, batch_of, conversation, grouped
from eagle3_backend.stages.vocab import read_maps
from eagle3_kernels import Counts, count, draft_loss, right_rows

REPORT = "report.json"
BATCH_ROWS = 2048
SEED = 17


@dataclass(frozen=True)
class Measured:
    """One conversation: the server's way through it, the counts over all its rows, and for each of these the share of
    the target's probability that the draft vocabulary holds."""

    index: int
    walk: Walk
    counts: Counts
    kept: Tensor


def run(context: StageContext) -> None:
    """Write ``report.json``: acceptance length with its interval, acceptance by position, the row metrics, coverage."""
    use_all_cores()
    depth = context.parameters.depth
    target = read_target(context.inputs["target"])
    d2t, _ = read_maps(context.inputs["vocab"])
    drafter = read_drafter(context.inputs["checkpoint"], target)
    rows = [conversation(row, depth) for row in open_store(context.inputs["store"]).rows("holdout")]
    rows = [entry for entry in rows if len(entry.used)]
    if not rows:
        message = "The store has no held-out conversation with a row that can be drafted from."
        raise FindingError(error("holdout_empty", message, fix="Set prompts.holdout to at least 1 and run again."))
    measured: list[Measured] = []
    sizes = [len(entry.used) for entry in rows]
    for group in grouped(range(len(rows)), sizes, BATCH_ROWS):
        measured += measure(drafter, target, d2t, [rows[index] for index in group])
        context.journal.progress(len(measured), len(rows), "conversations")
        context.leave_if_asked()
    report = report_of(measured, depth, context.parameters.bootstrap)
    write_json(context.output / REPORT, report)
    context.journal.metric(0, **{"evaluate/accept_len": report["acceptance_length"]["mean"]})
    print(json.dumps(report), flush=True)
    context.finish(report)


def read_drafter(checkpoint: Path, target: TargetHead) -> Drafter:
    """The trained drafter of a checkpoint artifact."""
    config = DrafterConfig.from_json(json.loads((checkpoint / CONFIG).read_text(encoding="utf-8")))
    return load_drafter(config, target.embedding, load_file(checkpoint / WEIGHTS)).eval()


@torch.no_grad()
def measure(drafter: Drafter, target: TargetHead, d2t: Tensor, conversations: Sequence[Conversation]) -> list[Measured]:
    """Draft from every row of these conversations, float32, and compare with the target's own greedy choices.

    A greedy chain goes on only while it is right, so what it feeds itself is what the target chose: one teacher-forced
    pass gives every chain at once.
    """
    batch = batch_of(conversations)
    hidden = drafter(batch.rows)
    ids = d2t + torch.arange(len(d2t))
    truth, kept = target.judge(batch.last, ids)
    teacher = target.teacher(batch.last, target.head[ids].float(), kept)
    found = draft_loss(hidden, drafter.lm_head.weight, teacher, batch.valid.float())
    right = right_rows(found.choices, batch.valid, ids, truth)
    measured = []
    start = 0
    for entry, length in zip(conversations, batch.lengths, strict=True):
        rows = slice(start, start + length)
        mine, valid = right[:, rows], batch.valid[:, rows]
        counts = count(mine, valid, found.losses[:, rows], found.alphas[:, rows])
        measured.append(Measured(entry.stored.index, walk(mine, valid, entry.used), counts, kept[rows]))
        start += length
    return measured


def report_of(measured: Sequence[Measured], depth: int, resamples: int) -> dict[str, Any]:
    """Sums over conversations; the interval resamples conversations, as the tokens of one are not independent."""
    steps = sum(entry.walk.steps for entry in measured)
    accepted = [sum(entry.walk.accepted[position] for entry in measured) for position in range(depth)]
    pairs = [(sum(entry.walk.accepted), entry.walk.steps) for entry in measured if entry.walk.steps]
    counts = measured[0].counts
    for entry in measured[1:]:
        counts = counts + entry.counts
    return {
        "depth": depth,
        "conversations": len(measured),
        "draft_steps": steps,
        "acceptance_length": acceptance_interval(pairs, resamples, SEED).to_json(),
        "acceptance_by_position": [round(entry / max(steps, 1), 4) for entry in accepted],
        "length_by_depth": [round(1 + sum(accepted[: k + 1]) / max(steps, 1), 4) for k in range(depth)],
        "rows": counts.metrics("eval", torch.ones(depth, dtype=torch.float64)),
        "teacher_mass": float(torch.cat([entry.kept for entry in measured]).double().mean()),
    }
