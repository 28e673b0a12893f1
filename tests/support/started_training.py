"""Runs in the train environment: ``started_training.py``, a JSON object on standard input, one as the last line.

A tiny drafter is trained and exported, then another library (``library``, by its ``python``) trains on from it: as the
stage does, one step an epoch over all conversations, and is killed and resumed. Told are the losses of its steps, and
what the first one has to be: in plain torch, by the library's rule of rows.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.pipeline.fingerprint import fingerprint
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.stages.drafter_model import Rows
from eagle3_backend.stages.reference_drafter import of_directory
from eagle3_backend.stages.target_head import read_target
from eagle3_backend.stages.training_data import read_data

STEPS = 20
"""Steps of the library's training."""
LAYOUTS = {"speculators": "flat", "specforge": "nested"}
"""The layout that each library does not read itself."""
SETTINGS = {"epochs": STEPS, "batch_rows": 1000, "optimizer": "adamw", "learning_rate": 3e-4, "ttt_steps": 2}
SETTINGS |= {"schedule": "constant", "warmup": 0.0}
ENOUGH = 4
"""Steps after which the training is killed."""


def attempt(
    folder: Path,
    stage: str,
    inputs: dict[str, Path],
    python: str,
    until: Callable[[Path], bool] | None = None,
    **values: Any,
) -> tuple[Path, list[dict[str, Any]]]:
    """One attempt of a stage: its output, and the journal's metrics. It is killed with its children at ``until``."""
    declared = STAGES[stage]
    parameters, plain = declared.parameters(**values), {name: str(path) for name, path in inputs.items()}
    name = fingerprint(declared, parameters, plain)
    runs = folder / ".eagle3" / "runs" / name
    directory = runs / str(1 + len(list(runs.iterdir())) if runs.is_dir() else 1)
    directory.mkdir(parents=True)
    output = folder / "campaign" / stage / name
    spec = {"run": name, "stage": stage, "stage_version": declared.version, "fingerprint": name, "payload": ""}
    spec |= {"parameters": asdict(parameters), "inputs": plain, "output": str(output)}
    (directory / "spec.json").write_text(json.dumps({**spec, "environment": declared.environment_of(parameters)}))
    journal = directory / "journal.jsonl"
    with open(directory / "output.log", "wb") as log:
        argv = [python, "-m", "eagle3_backend.stages", str(directory)]
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        while process.poll() is None:
            time.sleep(0.02)
            if until and until(journal):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    whole = read_manifest(output) is not None
    assert whole is (until is None), (directory / "output.log").read_text()[-3000:]
    return output, [line["values"] | {"step": line["step"]} for line in lines(journal) if line["kind"] == "metric"]


def lines(journal: Path) -> list[dict[str, Any]]:
    text = journal.read_bytes() if journal.exists() else b""
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def losses(metrics: list[dict[str, Any]]) -> dict[int, float]:
    """Loss of the first unrolled step by optimizer step."""
    return {line["step"]: line["train/loss_0"] for line in metrics if "train/loss_0" in line}


def expected(library: str, drafter: Path, inputs: dict[str, Path]) -> dict[str, float]:
    """The library's loss of unrolled step 0 over all training conversations: that of the drafter, ``start``, and that
    of one that knows nothing and takes all tokens for equally likely, ``ignorant``."""
    head = read_target(inputs["target"])
    start = of_directory(drafter, head.config)
    model, kept = start.model(head.embedding), torch.isin(torch.arange(len(head.head)), start.target_ids)
    totals, used, longest, count = torch.zeros(2), 0, 0, 0
    for row in read_data(inputs["store"], TrainParameters()).conversations:
        ids, mask, last = row.stored.token_ids[:-1].long(), row.stored.loss_mask[:-1].bool(), row.stored.last[:-1]
        places = torch.arange(len(ids) - 1)
        rows = Rows(row.stored.aux[: len(places)], ids[1:], places, (len(places),), places, ids[None, 1:])
        with torch.no_grad():
            known = model.lm_head(model(rows)[0])
        logits = head.normed(last[1:].float()) @ head.head.float().T
        teacher = torch.softmax(logits[:, start.target_ids], -1)
        drafted = torch.log_softmax(torch.stack([known, torch.zeros_like(known)]), -1)
        losses = -(teacher * drafted).sum(-1)
        if library == "speculators":
            losses, taken = losses + torch.xlogy(teacher, teacher).sum(-1), mask[1:]
        else:
            taken = mask[:-1] & kept[logits.argmax(-1)]
        totals, used = totals + losses[:, taken].sum(1), used + int(taken.sum())
        longest, count = max(longest, len(ids)), count + 1
    # SpecForge's is a mean over all rows of the padded batch.
    return dict(
        zip(
            ("start", "ignorant"),
            (totals / (used if library == "speculators" else longest * count)).tolist(),
            strict=True,
        )
    )


def told(library: str, python: str, folder: str) -> dict[str, Any]:
    place = Path(folder)
    source = Path(__file__).parents[1] / "stages" / "tiny_campaign.py"
    spec = importlib.util.spec_from_file_location("tiny_campaign", source)
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    inputs = {"target": tiny.write_target(place / "target")}
    inputs["store"] = tiny.write_store(place / "store", inputs["target"])
    read = {"target": inputs["target"], "conversations": tiny.write_conversations(place / "conversations")}
    inputs["vocab"], _ = attempt(place, "vocab", read, sys.executable, draft_vocab_size=44)
    checkpoint, _ = attempt(place, "train", inputs, sys.executable, epochs=4, batch_rows=60, train_head=True)
    exported, _ = attempt(place, "export", {**inputs, "checkpoint": checkpoint}, sys.executable)
    drafter = exported / LAYOUTS[library]

    def far(journal: Path) -> bool:
        return any(line.get("step", 0) >= ENOUGH for line in lines(journal) if line["kind"] == "metric")

    settings = {**SETTINGS, "trainer": library, "start_from": str(drafter)}
    killed, resumed = (losses(attempt(place, "train", inputs, python, until, **settings)[1]) for until in (far, None))
    return {**expected(library, drafter, inputs), "killed": killed, "resumed": resumed}


def main() -> None:
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        answer = told(**request)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
