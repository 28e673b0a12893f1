"""Trains the drafter by training-time test: every step of a draft is unrolled and judged by the target."""

from __future__ import annotations

import json
import random
import time
from dataclasses import astuple, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.pipeline.fingerprint import output_parameters
from eagle3_backend.pipeline.parameters import NATIVE, TrainParameters
from eagle3_backend.stages import checkpoints, foreign_training
from eagle3_backend.stages.checkpoints import Progress
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.initial_weights import initialise
from eagle3_backend.stages.optimization import build_optimizers, schedule, set_rate
from eagle3_backend.stages.ranks import Ranks, joined, use_all_cores
from eagle3_backend.stages.starting_drafter import foreign_embedding, fresh_config, go_on_from, start_of
from eagle3_backend.stages.store import open_store
from eagle3_backend.stages.target_head import read_target
from eagle3_backend.stages.training_data import parts_of, read_data
from eagle3_backend.stages.training_guards import check_loss, doubts, input_faults
from eagle3_backend.stages.training_memory import memory_faults
from eagle3_backend.stages.training_rows import Batch, Conversation, batch_of, shares
from eagle3_backend.stages.unrolled import unroll
from eagle3_backend.stages.vocab import read_maps
from eagle3_kernels import Counts, DraftLoss, count, draft_loss, kernel_path, right_rows

WEIGHTS, CONFIG = "drafter.safetensors", "drafter.json"
MEASURE_EVERY = 8
"""Optimizer steps between two measurements of accuracy: they need the target's whole head, the loss does not."""
MEASURED_ROWS = 512
"""Rows of a batch that such a measurement looks at, about."""


def run(context: StageContext) -> None:
    """Train, or go on from the newest whole checkpoint; write ``drafter.safetensors`` and ``drafter.json``."""
    if context.parameters.trainer != NATIVE:
        foreign_training.run(context)
        return
    with joined(context, context.parameters.processes) as ranks:
        use_all_cores(ranks.size)
        trainer = Trainer(context, ranks)
        trainer.begin()
        trainer.train()
    if ranks.first:
        trainer.write(context.output)
        context.finish(trainer.summary())


class Trainer:
    """One training, from its inputs to its last checkpoint; each of several ranks has one."""

    def __init__(self, context: StageContext, ranks: Ranks | None = None) -> None:
        self.context = context
        self.ranks = ranks or Ranks()
        self.parameters: TrainParameters = context.parameters
        self.checkpoints, self.data_name = context.output / "checkpoints", str(context.spec["fingerprint"])
        self.dtype = getattr(torch, self.parameters.dtype)
        self.target = read_target(context.inputs["target"])
        self.data = read_data(context.inputs["store"], self.parameters)
        stamp = open_store(context.inputs["store"]).stamp
        context.refuse(*input_faults(self.target, stamp, context.inputs["vocab"], self.data))
        d2t, _ = read_maps(context.inputs["vocab"])
        self.target_ids = d2t + torch.arange(len(d2t))
        config = fresh_config(self.target.config, stamp.layer_ids, len(d2t), self.parameters)
        self.start = start_of(context, self.target.config, config, self.target_ids)
        self.drafter = Drafter(self.start.config if self.start else config, self.target.embedding)
        self.drafter.lm_head.weight.requires_grad_(self.parameters.train_head)
        self.optimizers = build_optimizers(self.drafter, self.parameters)
        self.total = sum(len(self.data.batches(epoch)) for epoch in range(self.parameters.epochs))
        weights = [self.parameters.step_decay**step for step in range(self.parameters.ttt_steps)]
        self.step_weights = torch.tensor(weights, dtype=torch.float64)
        self.progress = Progress()
        self.saved_at = time.monotonic()
        self.written_step = 0
        self._cpu_start = time.process_time()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of this attempt so far and of those before it, all threads of the first process."""
        return self.progress.cpu_seconds + time.process_time() - self._cpu_start

    def begin(self) -> None:
        """Go on from the newest whole checkpoint of this artifact, or from first weights where there is none."""
        sizes = sum(weight.numel() for weight in self.drafter.parameters() if weight.requires_grad)
        facts = shares(self.data.conversations)
        self.context.journal.note(f"{sizes / 1e6:.1f} M trained parameters; {json.dumps(facts)}.")
        if reason := kernel_path(self.ranks.device).reason:
            self.context.journal.note(f"Kernels run as plain torch, slower and with more memory: {reason}")
        self.context.refuse(*doubts(facts, self.parameters))
        self.context.refuse(*memory_faults(self.drafter, self.target, self.data, self.parameters, self.ranks))
        found = checkpoints.newest_checkpoint(self.checkpoints, self.data_name, output_parameters(self.parameters))
        if found is None and self.ranks.first:
            self._first_weights()
        elif found:
            self.progress, weights, _ = found
            checkpoints.load_weights(self.drafter, weights)
        self.drafter.to(self.ranks.device)
        self.ranks.share(self.drafter.state_dict().values())
        if found:
            checkpoints.restore_optimizers(self.optimizers, dict(self.drafter.named_parameters()), found[2])
            self.context.journal.note(f"Goes on after step {self.progress.step}.")
        self.target, self.target_ids = self.ranks.place(self.target), self.ranks.place(self.target_ids)
        self.kept_head = self.target.head[self.target_ids].to(self.dtype)
        own_head = self.drafter.lm_head.weight.detach().to(self.dtype)
        self.frozen_head = self.kept_head if torch.equal(own_head, self.kept_head) else own_head

    def _first_weights(self) -> None:
        conversations = self.data.conversations
        if left := checkpoints.left_beside(self.context.output, output_parameters(self.parameters)):
            self.context.report(left)
        if self.start is None:
            initialise(self.drafter, self.target, self.target_ids, conversations, self.parameters.seed)
            return
        go_on_from(self.drafter, self.start, conversations)
        if differs := foreign_embedding(self.start, self.target.embedding):
            self.context.report(differs)

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
        conversations = [entry.cut(depth) for entry in conversations]
        share = schedule(step, self.total, self.parameters.warmup, self.parameters.schedule)
        rate = self.parameters.learning_rate * share
        set_rate(self.optimizers, rate)
        # Every rank knows the whole batch, so that the means are those of all ranks and all parts of the step.
        used = torch.stack([entry.valid.sum(1) for entry in conversations]).sum(0)
        weights = (self.step_weights if measured else torch.ones(depth)) / used.clamp(min=1)
        losses, counts = self._backward(conversations, weights, measured)
        total = float((losses.cpu() * weights).sum())
        check_loss(total, losses, conversations, step + 1)
        norm = torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), self.parameters.clip)
        check_loss(float(norm), losses, conversations, step + 1)
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        values = {"train/learning_rate": rate, "train/gradient_norm": float(norm)}
        if measured:
            values |= counts.metrics("train", self.step_weights)
            values["train/loss"] = total
        values |= {f"train/loss_{k}": mean for k, mean in enumerate((losses.cpu() / used.clamp(min=1)).tolist())}
        values["train/tokens_per_second"] = int(used[0]) / max(time.monotonic() - started, 1e-9)
        values["train/cpu_seconds"] = self.cpu_seconds
        self.context.journal.metric(step + 1, **values)

    def _backward(self, conversations: list[Conversation], weights: Tensor, measured: bool) -> tuple[Tensor, Counts]:
        """Gradients of a step, its losses summed over rows [K], and its counts where it is ``measured``; all of them
        over every rank and every part."""
        parts = parts_of(conversations, self.ranks.size * self.parameters.accumulation)
        losses = torch.zeros(len(weights), dtype=torch.float64, device=self.ranks.device)
        counts = losses.new_zeros(len(fields(Counts)), len(weights))
        for part in filter(None, parts[self.ranks.rank :: self.ranks.size]):
            batch = self.ranks.place(batch_of(part))
            truth, kept = self._judge(batch, MEASURED_ROWS // len(parts) if measured else 0)
            found = self.forward(batch, weights, kept)
            losses += found.losses.double().sum(1)
            if measured:
                counts += torch.stack(astuple(self._counts(batch, found, truth)))
        if self.ranks.size > 1:
            trained = [weight for weight in self.drafter.parameters() if weight.requires_grad]
            for weight in trained:
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            self.ranks.sum([losses, counts, *(weight.grad for weight in trained if weight.grad is not None)])
        return losses, Counts(*counts)

    def _depth(self, step: int) -> int:
        """TTT steps that this optimizer step unrolls: more than k of them in a share step_decay ** k of all."""
        draw = random.Random(f"{self.parameters.seed} depth {step}").random()
        return sum(draw < float(weight) for weight in self.step_weights)

    def forward(self, batch: Batch, weights: Tensor, kept: Tensor) -> DraftLoss:
        """Loss of a batch: the sum over the used rows, each weighted by its step's ``weights`` [K]; ``kept`` [M] as of
        `_judge`. With gradients enabled, the loss's are added to ``grad`` of the drafter's weights."""
        by_row = batch.valid * weights.to(batch.valid.device)[:, None]

        def judge(hidden: Tensor, places: slice) -> DraftLoss:
            head = self.drafter.lm_head.weight.to(self.dtype) if self.parameters.train_head else self.frozen_head
            # The last rows' later steps are judged by what judges the rows after them.
            judges = slice(places.start, places.stop + len(weights) - 1)
            teacher = self.target.teacher(batch.last[judges], self.kept_head, kept[judges])
            return draft_loss(hidden, head, teacher, by_row[:, places], kind=self.parameters.loss)

        found = unroll(self.drafter, batch.rows, batch.runs, self.dtype, judge)
        total = torch.stack([part.total for part in found]).sum()
        rest = [torch.cat([part[entry] for part in found], 1) for entry in range(1, len(DraftLoss._fields))]
        return DraftLoss(total, *rest)

    def _judge(self, batch: Batch, rows: int | None) -> tuple[Tensor, Tensor]:
        """The target's own choices for the first conversations that hold ``rows`` used rows, or for all; and for every
        row the share of the target's probability that the draft vocabulary holds, 1 where only the KL loss reads it."""
        ends = [0, *accumulate(batch.lengths)]
        end = ends[-1]
        if rows is not None and self.parameters.loss == "kl":
            end = next((place for place in ends if place >= rows), end)
        kept = torch.ones(len(batch.last), device=batch.last.device)
        if not end:
            return torch.empty(0, dtype=torch.int64, device=kept.device), kept
        truth, kept[:end] = self.target.judge(batch.last[:end], self.target_ids)
        return truth, kept

    def _counts(self, batch: Batch, found: DraftLoss, truth: Tensor) -> Counts:
        """Counts over the rows whose ``truth`` is known."""
        end = len(truth)
        valid = batch.valid[:, :end]
        right = right_rows(found.choices[:, :end], valid, self.target_ids, truth)
        return count(right, valid, found.losses[:, :end], found.alphas[:, :end])

    def evaluate(self) -> dict[str, float]:
        """Figures on held-out rows, under the names of the training's with the prefix ``eval``."""
        groups = self.data.evaluation()
        if not groups:
            return {}
        steps = len(self.step_weights)
        counts = torch.zeros(len(fields(Counts)), steps, dtype=torch.float64, device=self.ranks.device)
        with torch.no_grad():
            for conversations in groups[self.ranks.rank :: self.ranks.size]:
                batch = self.ranks.place(batch_of(conversations))
                truth, kept = self._judge(batch, None)
                found = self.forward(batch, torch.ones(steps), kept)
                counts += torch.stack(astuple(self._counts(batch, found, truth)))
        self.ranks.sum([counts])
        return Counts(*counts).metrics("eval", self.step_weights)

    def _end_epoch(self, epoch: int) -> None:
        values = self.evaluate()
        self.progress = replace(self.progress, epoch=epoch + 1, batch=0)
        if values.get("eval/accept_len", 0.0) > self.progress.best:
            self.progress = replace(self.progress, best=values["eval/accept_len"], best_step=self.progress.step)
        self.context.journal.metric(self.progress.step, **values, **{"train/cpu_seconds": self.cpu_seconds})
        if self.ranks.first:
            print(f"epoch {epoch + 1}: {json.dumps(values)}; {self.cpu_seconds:.0f} CPU seconds", flush=True)
        self._save()

    def _save_if_due(self) -> None:
        stopping = self.ranks.any(self.context.stopping)
        if stopping or time.monotonic() - self.saved_at > self.parameters.checkpoint_seconds:
            self._save()
        if stopping:
            raise Stopped

    def _save(self) -> None:
        self.saved_at = time.monotonic()
        if not self.ranks.first:
            return
        progress = replace(self.progress, cpu_seconds=self.cpu_seconds)
        names = {weight: name for name, weight in self.drafter.named_parameters()}
        moments = checkpoints.optimizer_tensors(self.optimizers, names)
        path = checkpoints.save_checkpoint(
            self.checkpoints,
            progress,
            self.drafter.state_dict(),
            moments,
            self.data_name,
            output_parameters(self.parameters),
        )
        self.context.journal.checkpoint(progress.step, str(path))

    def write(self, output: Path) -> None:
        """The weights that are kept, float32, and the drafter's canonical config."""
        if self.parameters.keep == "best" and (
            best := checkpoints.weights_at(self.checkpoints, self.progress.best_step)
        ):
            checkpoints.load_weights(self.drafter, best)
            self.written_step = self.progress.best_step
        save_file(self.drafter.served_weights(), output / WEIGHTS, metadata={"format": "pt"})
        write_json(output / CONFIG, self.drafter.config.to_json())

    def summary(self) -> dict[str, Any]:
        summary = {
            "steps": self.progress.step,
            "cpu_seconds": round(self.cpu_seconds, 1),
            "best": self.progress.best,
            "best_step": self.progress.best_step,
            "written_step": self.written_step or self.progress.step,
        }
        print(f"{summary['steps']} steps, {summary['cpu_seconds']} CPU seconds", flush=True)
        return summary
