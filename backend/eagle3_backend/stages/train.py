"""Trains the drafter by training-time test: every step of a draft is unrolled and judged by the target."""

from __future__ import annotations

import json
import math
import os
import random
import time
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from eagle3_backend.drafter.config import drafter_for
from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.pipeline.rows import MASK_COVERS_PROMPTS
from eagle3_backend.stages import checkpoints
from eagle3_backend.stages.checkpoints import Progress
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.initial_weights import initialise
from eagle3_backend.stages.optimization import build_optimizers, schedule
from eagle3_backend.stages.store import open_store
from eagle3_backend.stages.target_head import read_target
from eagle3_backend.stages.training_rows import Batch, Conversation, batch_of, conversation, grouped, order_of, shares
from eagle3_backend.stages.vocab import read_maps
from eagle3_kernels import Counts, DraftLoss, count, draft_loss, kernel_path, right_rows

WEIGHTS, CONFIG = "drafter.safetensors", "drafter.json"
FORM = (
    "heads",
    "kv_heads",
    "head_dim",
    "intermediate_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
)
"""Parameters that, where they are set, give the drafter another form than the target's own layer."""
MEASURE_EVERY = 8
"""Optimizer steps between two measurements of accuracy: they need the target's whole head, the loss does not."""
MEASURED_ROWS = 512
"""Rows of a batch that such a measurement looks at, about."""
EVALUATION_ROWS = 2048
"""Held-out rows that are measured after each epoch, at most."""


def run(context: StageContext) -> None:
    """Train, or go on from the newest whole checkpoint; write ``drafter.safetensors`` and ``drafter.json``."""
    use_all_cores()
    trainer = Trainer(context)
    trainer.begin()
    trainer.train()
    trainer.write(context.output)
    context.finish(trainer.summary())


def use_all_cores() -> None:
    """One thread for each core this process may use: sums depend on the number, so it is fixed."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class Data:
    """Conversations with at least one used row; ``batches(epoch)`` follow from seed and epoch alone."""

    conversations: list[Conversation]
    held_out: list[Conversation]
    parameters: TrainParameters

    def batches(self, epoch: int) -> list[list[int]]:
        sizes = [len(entry.used) for entry in self.conversations]
        order = order_of(self.parameters.seed, epoch, len(sizes))
        return list(grouped(order, sizes, self.parameters.batch_rows))

    def evaluation(self) -> list[list[Conversation]]:
        """The first held-out conversations, packed, up to the limit of rows."""
        sizes = [len(entry.used) for entry in self.held_out]
        groups, total = [], 0
        for group in grouped(range(len(sizes)), sizes, self.parameters.batch_rows):
            if total < EVALUATION_ROWS:
                groups.append([self.held_out[index] for index in group])
                total += sum(sizes[index] for index in group)
        return groups


def read_data(store: Path, parameters: TrainParameters) -> Data:
    """Both splits, through the gates on their masks. Raises FindingError."""
    opened = open_store(store)
    splits = [[conversation(row, parameters.ttt_steps) for row in opened.rows(split)] for split in ("train", "holdout")]
    if not any(len(entry.used) for entry in splits[0]):
        message = (
            "No row of the training set can be used: the target wrote none of its tokens, or answers of one token."
        )
        raise FindingError(error("loss_mask_all_zero", message, path=str(store), fix="Run generate and extract again."))
    usable = [[entry for entry in split if len(entry.used)] for split in splits]
    return Data(usable[0], usable[1], parameters)


class Trainer:
    """One training, from its inputs to its last checkpoint."""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.parameters: TrainParameters = context.parameters
        self.target = read_target(context.inputs["target"])
        self.data = read_data(context.inputs["store"], self.parameters)
        stamp = open_store(context.inputs["store"]).stamp
        d2t, _ = read_maps(context.inputs["vocab"])
        self.target_ids = d2t + torch.arange(len(d2t))
        form = {name: getattr(self.parameters, name) for name in FORM if getattr(self.parameters, name)}
        config = replace(drafter_for(self.target.config, stamp.layer_ids, len(d2t)), **form)
        self.drafter = Drafter(config, self.target.embedding)
        self.kept_head = self.target.head[self.target_ids].to(self.dtype)
        self.drafter.lm_head.weight.requires_grad_(self.parameters.train_head)
        self.optimizers = build_optimizers(self.drafter, self.parameters)
        self.total = sum(len(self.data.batches(epoch)) for epoch in range(self.parameters.epochs))
        weights = [self.parameters.step_decay**step for step in range(self.parameters.ttt_steps)]
        self.step_weights = torch.tensor(weights, dtype=torch.float64)
        self.progress = Progress()
        self.saved_at = time.monotonic()
        self._cpu_start = time.process_time()

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.parameters.dtype)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of this attempt so far and of those before it, all threads."""
        return self.progress.cpu_seconds + time.process_time() - self._cpu_start

    def begin(self) -> None:
        """Go on from the newest whole checkpoint of this artifact, or from fresh weights where there is none."""
        sizes = sum(weight.numel() for weight in self.drafter.parameters() if weight.requires_grad)
        facts = shares(self.data.conversations)
        self.context.journal.note(f"{sizes / 1e6:.1f} M trained parameters; {json.dumps(facts)}.")
        if reason := kernel_path(self.target.head.device).reason:
            self.context.journal.note(f"Kernels run as plain torch, slower and with more memory: {reason}")
        density = facts["mask_density"]
        if density > MASK_COVERS_PROMPTS:
            message = f"{density:.0%} of all tokens are marked as written by the target: the mask covers prompts too."
            self.context.refuse(error("loss_mask_covers_prompt", message, path="loss_mask", actual=density))
        found = checkpoints.newest_checkpoint(self._folder, self._data_name)
        if found is None:
            initialise(self.drafter, self.target, self.target_ids, self.data.conversations, self.parameters.seed)
            return
        self.progress, weights, moments = found
        self.drafter.load_state_dict(weights)
        checkpoints.restore_optimizers(self.optimizers, dict(self.drafter.named_parameters()), moments)
        self.context.journal.note(f"Goes on after step {self.progress.step}.")

    def train(self) -> None:
        """All epochs that are left. Raises `Stopped` after saving, FindingError when the loss is not a loss."""
        for epoch in range(self.progress.epoch, self.parameters.epochs):
            batches = self.data.batches(epoch)
            for number in range(self.progress.batch, len(batches)):
                started = time.monotonic()
                self._step([self.data.conversations[index] for index in batches[number]])
                self.progress = replace(self.progress, step=self.progress.step + 1, epoch=epoch, batch=number + 1)
                rate = 1.0 / max(time.monotonic() - started, 1e-9)
                self.context.journal.progress(self.progress.step, self.total, "steps", rate)
                self._save_if_due()
            self._end_epoch(epoch)

    def _step(self, conversations: list[Conversation]) -> None:
        started, step = time.monotonic(), self.progress.step
        measured = step % MEASURE_EVERY == 0
        depth = self.parameters.ttt_steps if measured else self._depth(step)
        batch = batch_of([entry.cut(depth) for entry in conversations])
        rate = self.parameters.learning_rate * schedule(step, self.total, self.parameters.warmup)
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = rate
        truth, kept = self._judge(batch, MEASURED_ROWS if measured else 0)
        found = self.forward(batch, self.step_weights if measured else torch.ones(depth), kept)
        total, losses = found.total, found.losses
        self._check(float(total.detach()), losses, conversations)
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), self.parameters.clip)
        self._check(float(norm), losses, conversations)
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        means = (losses.double().sum(1) / batch.valid.sum(1).clamp(min=1)).tolist()
        values = {"train/learning_rate": rate, "train/gradient_norm": float(norm)}
        if measured:
            values |= self._counts(batch, found, truth).metrics("train", self.step_weights)
            values["train/loss"] = float(total.detach())
        values |= {f"train/loss_{k}": mean for k, mean in enumerate(means)}
        values["train/tokens_per_second"] = len(batch.last) / max(time.monotonic() - started, 1e-9)
        values["train/cpu_seconds"] = self.cpu_seconds
        self.context.journal.metric(step + 1, **values)

    def _depth(self, step: int) -> int:
        """TTT steps that this optimizer step unrolls: more than k of them in a share step_decay ** k of all."""
        draw = random.Random(f"{self.parameters.seed} depth {step}").random()
        return sum(draw < float(weight) for weight in self.step_weights)

    def forward(self, batch: Batch, step_weights: Tensor, kept: Tensor) -> DraftLoss:
        """Loss of a batch: the mean over the used rows of each step, weighted by step; ``kept`` [M] as of `_judge`."""
        with torch.autocast(batch.last.device.type, self.dtype, enabled=self.dtype != torch.float32):
            hidden = self.drafter(batch.rows)
        head = self.drafter.lm_head.weight.to(self.dtype) if self.parameters.train_head else self.kept_head
        weights = batch.valid * (step_weights / batch.valid.sum(1).clamp(min=1))[:, None]
        teacher = self.target.teacher(batch.last, self.kept_head, kept)
        return draft_loss(hidden.to(self.dtype), head, teacher, weights, kind=self.parameters.loss)

    def _judge(self, batch: Batch, rows: int | None) -> tuple[Tensor, Tensor]:
        """The target's own choices for the first conversations that hold ``rows`` used rows, or for all; and for every
        row the share of the target's probability that the draft vocabulary holds, 1 where only the KL loss reads it."""
        ends = [0, *accumulate(batch.lengths)]
        end = ends[-1]
        if rows is not None and self.parameters.loss == "kl":
            end = next((place for place in ends if place >= rows), end)
        kept = torch.ones(len(batch.last))
        if not end:
            return torch.empty(0, dtype=torch.int64), kept
        truth, kept[:end] = self.target.judge(batch.last[:end], self.target_ids)
        return truth, kept

    def _counts(self, batch: Batch, found: DraftLoss, truth: Tensor) -> Counts:
        """Counts over the rows whose ``truth`` is known."""
        end = len(truth)
        valid = batch.valid[:, :end]
        right = right_rows(found.choices[:, :end], valid, self.target_ids, truth)
        return count(right, valid, found.losses[:, :end], found.alphas[:, :end])

    def _check(self, value: float, losses: Tensor, conversations: list[Conversation]) -> None:
        """Stop at once on a loss or a gradient that is not finite, and on a loss of exactly zero."""
        step, rows = self.progress.step + 1, [entry.stored.index for entry in conversations]
        if not math.isfinite(value):
            message = f"Loss or gradient norm is {value} at step {step}; conversations {rows}."
            fix = "Resume with a lower learning rate, or look at these conversations in the store."
            raise FindingError(error("loss_nan", message, path=f"step {step}", actual=str(value), fix=fix))
        if not bool(losses[0].any()):
            message = f"The loss is exactly zero at step {step}: no row is supervised or the teacher is the drafter."
            raise FindingError(error("loss_zero_constant", message, path=f"step {step}", actual=0.0))

    def evaluate(self) -> dict[str, float]:
        """Figures on held-out rows, under the names of the training's with the prefix ``eval``."""
        total: Counts | None = None
        with torch.no_grad():
            for conversations in self.data.evaluation():
                batch = batch_of(conversations)
                truth, kept = self._judge(batch, None)
                counts = self._counts(batch, self.forward(batch, self.step_weights, kept), truth)
                total = counts if total is None else total + counts
        return {} if total is None else total.metrics("eval", self.step_weights)

    def _end_epoch(self, epoch: int) -> None:
        values = self.evaluate()
        self.progress = replace(self.progress, epoch=epoch + 1, batch=0)
        if values.get("eval/accept_len", 0.0) > self.progress.best:
            self.progress = replace(self.progress, best=values["eval/accept_len"], best_step=self.progress.step)
        self.context.journal.metric(self.progress.step, **values, **{"train/cpu_seconds": self.cpu_seconds})
        print(f"epoch {epoch + 1}: {json.dumps(values)}; {self.cpu_seconds:.0f} CPU seconds", flush=True)
        self._save()

    def _save_if_due(self) -> None:
        if self.context.stopping or time.monotonic() - self.saved_at > self.parameters.checkpoint_seconds:
            self._save()
        self.context.leave_if_asked()

    def _save(self) -> None:
        progress = replace(self.progress, cpu_seconds=self.cpu_seconds)
        names = {weight: name for name, weight in self.drafter.named_parameters()}
        moments = checkpoints.optimizer_tensors(self.optimizers, names)
        path = checkpoints.save_checkpoint(
            self._folder, progress, self.drafter.state_dict(), moments, data=self._data_name
        )
        self.context.journal.checkpoint(progress.step, str(path))
        self.saved_at = time.monotonic()

    @property
    def _folder(self) -> Path:
        return self.context.output / "checkpoints"

    @property
    def _data_name(self) -> str:
        return str(self.context.spec["fingerprint"])

    def write(self, output: Path) -> None:
        """The trained weights, float32, and the drafter's canonical config."""
        save_file(self.drafter.served_weights(), output / WEIGHTS, metadata={"format": "pt"})
        write_json(output / CONFIG, self.drafter.config.to_json())

    def summary(self) -> dict[str, Any]:
        summary = {"steps": self.progress.step, "cpu_seconds": round(self.cpu_seconds, 1), "best": self.progress.best}
        print(f"{summary['steps']} steps, {summary['cpu_seconds']} CPU seconds", flush=True)
        return summary
