"""SpecForge 0.2.0 as an offline trainer: its files, its run configuration, its figures, its checkpoints."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.stages.foreign_inputs import (
    Work,
    draft_flat,
    given,
    not_followed,
    not_possible,
    write_flat_start,
    write_target,
)
from eagle3_backend.stages.foreign_training import Figures, Position
from eagle3_backend.stages.specforge_entry import CPU_PATCHES
from eagle3_backend.stages.training_rows import Conversation

ENTRY = "eagle3_backend.stages.specforge_entry"
RUN = "run"
"""Its name of the training, with which its checkpoints' folders begin."""
SAVES = 4
"""Checkpoints in an epoch: it writes none when it is asked to end."""
STEP_DECAY = 0.8
UNKNOWN_FORMS = ("norm_before_residual", "norm_before_fc", "norm_output")
_FIGURES = re.compile(r"^step (\d+): (\{.*\})$")
_NO_NUMBER = re.compile(r"-?\b(?:nan|inf)\b")
_LATEST = re.compile(r"-step(\d+)$")


class SpecForge:
    """One training by SpecForge. Its batches are conversations, padded to the longest of each batch."""

    name, module, cpu_patches = "specforge", "specforge", CPU_PATCHES

    def __init__(self, work: Work) -> None:
        self.work = work

    def doubts(self) -> list[Finding]:
        """What it cannot do, and what it does otherwise than the parameters say."""
        parameters = self.work.parameters
        missing = [name for name in UNKNOWN_FORMS if getattr(self.work.config, name)]
        found = [
            not_possible(self.name, name, "its EAGLE-3 drafter has no such form", f"Leave {name} off.")
            for name in missing
            if getattr(parameters, name)
        ] or [
            not_possible(self.name, "start_from", f"its EAGLE-3 drafter has no {name}", 'Use trainer = "native".')
            for name in missing
        ]
        count = len(self.work.config.aux_layers)
        if count != 3:
            message = f"specforge trains drafters with three aux layers, and the store has {count}."
            found.append(error("trainer_parameter_unsupported", message, path="stages.extract.aux_layers"))
        differences = {
            "batch_rows": f"{self.batch} conversations a step for each process, about as many rows",
            "step_decay": f"{STEP_DECAY}, and every step is unrolled each time",
            "weight_decay": "that of its own AdamW",
        }
        if parameters.optimizer != "adamw":
            differences["optimizer"] = "AdamW over bfloat16 weights with float32 masters"
        if parameters.schedule == "linear":
            differences["schedule"] = "cosine"
        if not parameters.train_head:
            differences["train_head"] = f"the head is trained{'' if self.work.start else ', from random weights'}"
        if parameters.dtype != "bfloat16":
            differences["dtype"] = "bfloat16"
        return [*found, *not_followed(self.name, differences)]

    @property
    def batch(self) -> int:
        """Conversations that hold about the rows of a step of ours. A last short batch is dropped by the library."""
        rows = self.work.data.conversations
        mean = sum(len(row.used) for row in rows) / len(rows)
        share = len(rows) // (self.work.processes * self.work.parameters.accumulation)
        return max(1, min(round(self.work.parameters.batch_rows / (mean * self.work.processes)), share))

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch: the rows are dealt out evenly, and short batches are dropped."""
        each = -(-len(self.work.data.conversations) // self.work.processes)
        return max(1, each // self.batch // self.work.parameters.accumulation)

    @property
    def total(self) -> int:
        return self.steps * self.work.parameters.epochs

    def write(self, leave: Callable[[], None]) -> None:
        """Its feature files, one for each conversation, the last state after the final norm; and its map."""
        work, folder = self.work, self.work.inputs
        self._write_rows(folder / "train", work.data.conversations, leave)
        self._write_rows(folder / "holdout", work.data.held_out, leave)
        write_target(work, folder / "target")
        draft = {**draft_flat(work), "architectures": ["LlamaForCausalLMEagle3"]}
        # Its own key of this name says whether the head sees normed states at all, which it always does in EAGLE-3.
        draft.pop("norm_output")
        (folder / "draft.json").write_text(json.dumps(draft), encoding="utf-8")
        if work.start:
            write_flat_start(work, draft)
        d2t, t2d = work.maps
        torch.save({"d2t": d2t, "t2d": t2d}, folder / "vocabulary.pt")

    def _write_rows(self, folder: Path, rows: Sequence[Conversation], leave: Callable[[], None]) -> None:
        folder.mkdir(parents=True)
        for number, row in enumerate(given(rows)):
            leave()
            features = {
                "input_ids": row.token_ids,
                "loss_mask": row.loss_mask.long(),
                "hidden_state": self.work.target.normed(row.last).bfloat16()[None],
                "aux_hidden_state": row.aux.bfloat16()[None].clone(),
            }
            torch.save(features, folder / f"data_{number:08d}.ckpt")

    def command(self) -> list[str]:
        """Its command for this training; on several GPUs it starts its own processes."""
        path = self.work.folder / "run.json"
        path.write_text(json.dumps(self.configuration(), indent=1), encoding="utf-8")
        if self.work.processes > 1:
            return ["-m", "specforge.cli", "train", "--config", str(path)]
        return ["-m", ENTRY, "train", "--config", str(path)]

    def configuration(self) -> dict[str, Any]:
        """Its run configuration; what is not named has its own default."""
        work, parameters, folder = self.work, self.work.parameters, self.work.inputs
        training: dict[str, Any] = {
            "strategy": "eagle3",
            "num_epochs": parameters.epochs,
            "batch_size": self.batch,
            "accumulation_steps": parameters.accumulation,
            "learning_rate": parameters.learning_rate,
            "lr_scheduler": "constant" if parameters.schedule == "constant" else "cosine",
            "warmup_ratio": parameters.warmup,
            "max_grad_norm": parameters.clip,
            "ttt_length": parameters.ttt_steps,
            "seed": parameters.seed,
            "log_interval": 1,
            "eval_interval": self.steps,
            "save_interval": -(-self.steps // SAVES),
            "max_checkpoints": 2,
        }
        if parameters.loss == "lk_hybrid":
            training |= {"lk_loss_type": "lambda", "kl_scale": 1.0, "kl_decay": 3.0}
        if not work.gpus:
            # A path of its own, and no processes beside two cores.
            training |= {"attention_backend": "sdpa", "fsdp_sharding": "NO_SHARD"}
        model = {
            "target_model_path": str(folder / "target"),
            "draft_model_config": str(folder / "draft.json"),
            "vocab_mapping_path": str(folder / "vocabulary.pt"),
        }
        # It takes one of the two, and a checkpoint of this training is further than what it started from.
        if self.start().step:
            training["resume_from"] = str(work.checkpoints)
        elif work.start:
            model["draft_checkpoint_path"] = str(work.begun)
        data = {
            "hidden_states_path": str(folder / "train"),
            "eval_hidden_states_path": str(folder / "holdout"),
            "max_length": work.longest,
            "cache_dir": str(work.folder / "cache"),
        }
        return {
            "run_id": RUN,
            "output_dir": str(work.checkpoints),
            "model": model,
            "data": data if work.gpus else {**data, "dataloader_num_workers": 0},
            "training": training,
            "deployment": {"trainer": {"nproc_per_node": work.processes}},
        }

    def environment(self) -> dict[str, str]:
        """Without a GPU nothing is compiled: some of it is for one, and the rest takes minutes of two cores."""
        return {} if self.work.gpus else {"TORCH_COMPILE_DISABLE": "1"}

    def figures(self, line: str) -> Figures | None:
        """The figures in a line of its output, under our names."""
        found = _FIGURES.match(line)
        if not found:
            return None
        step, values = int(found.group(1)), ast.literal_eval(_NO_NUMBER.sub(r"'\g<0>'", found.group(2)))
        tokens = sum(len(row.stored.token_ids) for row in self.work.data.conversations)
        translated = translate(values, tokens / len(self.work.data.conversations))
        held_out = "eval/loss" in translated
        return Figures(None if held_out else step, (step - 1) // self.steps, translated)

    def go_on(self, position: Position | None) -> list[Finding]:
        """It goes on from its newest checkpoint by itself; the steps after that one are lost."""
        kept = self.start().step
        if position is None or position.step <= kept:
            return []
        message = (
            f"SpecForge saves nothing when it is asked to end: goes on after step {kept}, and "
            f"{position.step - kept} steps after its last checkpoint are made again."
        )
        return [warning("resume_repeats_steps", message, path="stages.train.trainer", actual=position.step - kept)]

    def start(self) -> Position:
        """Where its newest checkpoint stands."""
        latest = self.work.checkpoints / f"{RUN}-latest"
        found = _LATEST.search(latest.resolve().name) if (latest / "training_state.pt").is_file() else None
        step = int(found.group(1)) if found else 0
        return Position(step // self.steps, step % self.steps, step)

    def result(self) -> Path:
        """The directory of the drafter that is kept, written by its own exporter. Raises FindingError."""
        best, latest = (self.work.checkpoints / f"{RUN}-{name}" for name in ("best", "latest"))
        kept = (best if self.work.parameters.keep == "best" and best.is_dir() else latest).resolve()
        directory = self.work.folder / kept.name
        shutil.rmtree(directory, ignore_errors=True)
        words = ["export", "--to", "sglang", "--checkpoint", str(kept), "--output-dir", str(directory)]
        command = [sys.executable, "-m", ENTRY, *words, "--draft-config", str(self.work.inputs / "draft.json")]
        done = subprocess.run(command, check=False)
        if done.returncode:
            message = f"SpecForge's export of {kept.name} ended with exit code {done.returncode}."
            raise FindingError(error("run_failed", message, path="train", actual=done.returncode))
        return directory


def translate(values: Mapping[str, Any], mean_tokens: float) -> dict[str, float]:
    """Figures of SpecForge under our names; those without a counterpart here are left out.

    Its losses are means over all rows of a padded batch, whether they are trained on or not. `accept_len` is 1 and its
    own estimate: the products of the shares that are right at each step, as if they did not depend on each other.
    """
    held_out = any(name.startswith("eval/") for name in values)
    prefix = "eval" if held_out else "train"
    plain = {name.removeprefix("eval/"): value for name, value in values.items()}
    right = plain.get("per_position_acc") or []
    plain |= {f"acc_{step}": value for step, value in enumerate(right)}
    names = {"loss": "loss", "avg_loss": "loss", "lr": "learning_rate", "grad_norm": "gradient_norm"}
    found = {f"{prefix}/{names[name]}": float(value) for name, value in plain.items() if name in names}
    kinds = {"acc_": "acc_", "ploss_": "loss_", "acceptance_rate_": "alpha_"}
    for theirs, ours in kinds.items():
        for name, value in plain.items():
            if re.fullmatch(rf"{theirs}\d+", name):
                found[f"{prefix}/{ours}{name.removeprefix(theirs)}"] = float(value)
    length = product = 1.0
    step = 0
    while (share := found.get(f"{prefix}/acc_{step}")) is not None:
        product *= share
        length += product
        step += 1
    if step:
        found[f"{prefix}/accept_len"] = length
    if (samples := plain.get("perf/global_samples_per_second")) is not None:
        found["train/tokens_per_second"] = samples * mean_tokens
    return found


LIBRARY = SpecForge
