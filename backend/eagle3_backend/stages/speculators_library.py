"""speculators 0.9.0 as a trainer: its files, its options, its figures, its checkpoints."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from eagle3_backend.drafter.tensorfile import read_header
from eagle3_backend.findings import Finding, FindingError, warning
from eagle3_backend.pipeline.run_folders import CONFIG, OPTIMIZER, STATE, WEIGHTS, checkpoints
from eagle3_backend.stages.foreign_inputs import (
    Work,
    draft_layer,
    given,
    not_followed,
    not_possible,
    write_nested_start,
    write_target,
)
from eagle3_backend.stages.foreign_training import Figures, Position
from eagle3_backend.stages.speculators_entry import CPU_PATCHES, FIGURES

LOSSES = {"kl": "kl_div", "lk_hybrid": "lk_hybrid"}
SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "none"}
FLAGS = ("norm_before_residual", "norm_before_fc", "norm_output")
ENTRY = "eagle3_backend.stages.speculators_entry"
INTERRUPTED = "interrupted"
"""The folder of the checkpoint that the library writes when it is asked to end."""


class Speculators:
    """One training by speculators. It packs conversations into rows of a fixed number of tokens."""

    name, module, cpu_patches, total = "speculators", "speculators", CPU_PATCHES, None

    def __init__(self, work: Work) -> None:
        self.work = work

    def doubts(self) -> list[Finding]:
        """What it cannot do, and what it does otherwise than the parameters say."""
        work, parameters, found = self.work, self.work.parameters, []
        if work.config.norm_before_fc and work.config.fc_norm:
            fix = "Set one of norm_before_fc and fc_norm."
            found.append(not_possible(self.name, "fc_norm", "it knows one norm before fc at a time", fix))
        differences = {"batch_rows": f"tokens of a packed row, at most {self.tokens}, for each process"}
        if parameters.clip != 1.0:
            differences["clip"] = "1.0"
        if parameters.accumulation != 1:
            differences["accumulation"] = "1"
        if parameters.train_head:
            differences["train_head"] = (
                "the head stays as it is" if work.start else "the head stays the target's own rows"
            )
        if work.start and work.config.rms_norm_eps != work.target.facts["rms_norm_eps"]:
            differences["start_from"] = "the target's final norm is computed with the drafter's rms_norm_eps"
        if parameters.schedule == "constant" and parameters.warmup:
            differences["warmup"] = "a constant rate has none"
        return [*found, *not_followed(self.name, differences)]

    @property
    def tokens(self) -> int:
        """Tokens of a packed row: it cuts what is longer, so no conversation is."""
        return max(self.work.parameters.batch_rows, self.work.longest)

    def write(self, leave: Callable[[], None]) -> None:
        """Its data set: an Arrow table of tokens and masks, training rows first, and one file of states for each."""
        work, folder = self.work, self.work.inputs
        self._write_rows(leave)
        write_target(work, folder / "target")
        if work.start:
            write_nested_start(work)
        else:
            (folder / "draft.json").write_text(json.dumps(draft_layer(work)), encoding="utf-8")
        if work.reduced:
            numpy = importlib.import_module("numpy")
            for name, tensor in zip(("d2t", "t2d"), work.maps, strict=True):
                numpy.save(folder / f"{name}.npy", tensor.numpy())

    def _write_rows(self, leave: Callable[[], None]) -> None:
        datasets = importlib.import_module("datasets")
        work, folder = self.work, self.work.inputs
        states = folder / "hidden_states"
        states.mkdir(parents=True)
        columns: dict[str, list[Any]] = {"input_ids": [], "loss_mask": [], "seq_len": []}
        rows = given([*work.data.conversations, *work.data.held_out])
        for number, row in enumerate(rows):
            leave()
            layers = row.aux.unflatten(1, (len(work.config.aux_layers), -1))
            tensors = {"hidden_states": torch.cat([layers, row.last[:, None]], 1), "token_ids": row.token_ids}
            save_file(tensors, states / f"hs_{number}.safetensors")
            columns["input_ids"].append(row.token_ids.tolist())
            columns["loss_mask"].append(row.loss_mask.tolist())
            columns["seq_len"].append(len(row.token_ids))
        datasets.Dataset.from_dict(columns).with_format("torch").save_to_disk(folder / "rows")

    def command(self) -> list[str]:
        """Its trainer for this training, on several GPUs with one process each."""
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.work.processes}"]
        return [*(torchrun if self.work.processes > 1 else []), "-m", ENTRY, *self.arguments()]

    def arguments(self) -> list[str]:
        """Options of `speculators train`."""
        work, parameters = self.work, self.work.parameters
        folder, train, held_out = work.inputs, len(work.data.conversations), len(work.data.held_out)
        values: dict[str, Any] = {
            "speculator-type": "eagle3",
            "verifier-name-or-path": folder / "target",
            "mask-token-id": 0,
            "data-path": folder / "rows",
            "hidden-states-path": folder / "hidden_states",
            "on-missing": "raise",
            # It cuts the rows at this share, rounded down.
            "train-data-ratio": (train + 0.5) / (train + held_out),
            "total-seq-len": self.tokens,
            "hidden-states-dtype": parameters.dtype,
            "loss-fn": LOSSES[parameters.loss],
            "ttt-steps": parameters.ttt_steps,
            "ttt-step-loss-decay": parameters.step_decay,
            "optimizer": parameters.optimizer,
            "lr": parameters.learning_rate,
            "weight-decay": parameters.weight_decay,
            "muon-weight-decay": parameters.weight_decay,
            "scheduler-type": SCHEDULES[parameters.schedule],
            "scheduler-warmup-ratio": parameters.warmup,
            "epochs": parameters.epochs,
            "seed": parameters.seed,
            "save-path": work.checkpoints,
            "log-dir": work.folder / "logs",
        }
        if work.reduced:
            size = work.config.draft_vocab_size
            values |= {"draft-vocab-size": size, "d2t-path": folder / "d2t.npy", "t2d-path": folder / "t2d.npy"}
        if not work.gpus:
            # Options of its own for machines without its two kernels, and no processes beside two cores.
            values |= {"draft-attn-impl": "sdpa", "loss-implementation": "eager", "num-workers": 0}
        if work.start:
            # Weights, form and aux layers come from it; a checkpoint of this training is loaded over it.
            values["from-pretrained"] = work.begun
        else:
            values["draft-config"] = folder / "draft.json"
        words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        return [*words, *([] if work.start else self._form())]

    def _form(self) -> list[str]:
        """Options for the form of a fresh drafter."""
        parameters = self.work.parameters
        flags = [f"--{'' if getattr(parameters, name) else 'no-'}{name.replace('_', '-')}" for name in FLAGS]
        fc_norm = ["--fc-norm"] if parameters.fc_norm else []
        return [*flags, *fc_norm, "--target-layer-ids", *map(str, self.work.config.aux_layers)]

    def environment(self) -> dict[str, str]:
        return {}

    def figures(self, line: str) -> Figures | None:
        """The figures in a line of its output, under our names."""
        if not line.startswith(FIGURES):
            return None
        return translated(json.loads(line[len(FIGURES) :]), self.work.parameters.step_decay)

    def go_on(self, position: Position | None) -> list[Finding]:
        """Make its newest whole checkpoint the one that it goes on from; ``position`` is where it was asked to end.

        It writes the checkpoint of an interruption under a name that it does not read, without the place in the epoch;
        its own word on it is to rename the folder to the epoch's number. The place is written into the file that it
        reads for checkpoints within an epoch.
        """
        folder, found = self.work.checkpoints, []
        left = folder / INTERRUPTED
        if left.is_dir() and position is not None and not faults(left):
            target = folder / str(position.epoch)
            shutil.rmtree(target, ignore_errors=True)
            left.rename(target)
            state = {"epoch": position.epoch, "local_step": position.in_epoch, "global_step": position.step}
            (target / STATE).write_text(json.dumps(state), encoding="utf-8")
            found.append(_rounded(position.step))
        shutil.rmtree(left, ignore_errors=True)
        for checkpoint in checkpoints(folder) if folder.is_dir() else []:
            if checkpoint.faults:
                shutil.rmtree(checkpoint.path)
                reasons = "; ".join(checkpoint.faults)
                message = f"Its checkpoint {checkpoint.path.name} is not whole and is left out: {reasons}."
                found.append(warning("checkpoint_incomplete", message, path=str(checkpoint.path)))
        return found

    def start(self) -> Position:
        """Where its newest checkpoint stands."""
        folder = self.work.checkpoints
        known = [entry for entry in checkpoints(folder) if not entry.faults] if folder.is_dir() else []
        if not known:
            return Position()
        state = json.loads((known[-1].path / STATE).read_text(encoding="utf-8"))
        within = int(state["local_step"])
        return Position(int(state["epoch"]) + (within == 0), within, int(state["global_step"]))

    def result(self) -> Path:
        """The directory of the drafter that is kept."""
        best = self.work.checkpoints / "checkpoint_best"
        if self.work.parameters.keep == "best" and best.is_dir():
            return best.resolve()
        return checkpoints(self.work.checkpoints)[-1].path


def faults(directory: Path) -> list[str]:
    """Why nothing can go on from a checkpoint that an interruption left; its place in the epoch is not among it."""
    found = [name for name in (CONFIG, WEIGHTS, OPTIMIZER) if not (directory / name).is_file()]
    if not found:
        try:
            read_header(directory / WEIGHTS)
        except (FindingError, OSError, ValueError):
            found.append(WEIGHTS)
    return found


def _rounded(step: int) -> Finding:
    message = (
        f"Goes on after step {step}. speculators stores weights and moments in bfloat16 and may stop within a step, so "
        "this is not the training that would have been without the stop."
    )
    return warning("resume_not_exact", message, path="stages.train.trainer")


def translated(record: Mapping[str, Any], decay: float) -> Figures:
    """Figures of speculators under our names; those without a counterpart here are left out.

    Its losses of later steps are weighted, ours are not. `accept_len` is 1 and the sum of its shares that are right up
    to each step. Its "right" is the choice of the target within the draft vocabulary.
    """
    training = "train" in record
    prefix, values = ("train", dict(record["train"])) if training else ("eval", dict(record["val"]))
    values = {name.removesuffix("_epoch"): value for name, value in values.items()}
    found: dict[str, float] = {}
    steps = sorted(int(name.removeprefix("full_acc_")) for name in values if name.startswith("full_acc_"))
    for step in steps:
        found[f"{prefix}/loss_{step}"] = values[f"loss_{step}"] / decay**step
        found[f"{prefix}/cond_acc_{step}"] = values[f"cond_acc_{step}"]
    if steps:
        found[f"{prefix}/accept_len"] = 1 + sum(values[f"full_acc_{step}"] for step in steps)
    found[f"{prefix}/loss"] = values["loss"]
    if training:
        rates = record["lr"].values() if isinstance(record["lr"], Mapping) else (record["lr"],)
        found["train/learning_rate"] = max(rates)
        if profile := record.get("profile"):
            found["train/tokens_per_second"] = profile["tokens_per_s"]
    return Figures(record.get("global_step", -1) + 1 if training else None, record["epoch"], found)


LIBRARY = Speculators
