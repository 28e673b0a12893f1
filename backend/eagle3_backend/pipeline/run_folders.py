"""The folder of a training that another tool ran: from where it would go on, and what its figures can prove.

Checkpoints are folders with a number for a name. One is whole when its configuration, its weights, its optimizer and
its state are there; ``epoch`` in the state counts from 0 and names the epoch that is finished (``local_step`` 0) or
under way. Such folders are read and judged, never written.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from eagle3_backend.drafter.tensorfile import read_header
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.pipeline.judgement import Judgement

CONFIG, WEIGHTS, OPTIMIZER, STATE = (
    "config.json",
    "model.safetensors",
    "optimizer_state_dict.pt",
    "training_state.json",
)
SETTINGS, METRICS = "train_config.json", "metrics.jsonl"
FEW_SAMPLES = 10_000
"""Training samples below which acceptance stays low, whatever else is right (vllm-project/speculators#751)."""

_EPOCH_DONE = re.compile(r"[Ee]poch\s+(\d+)\s*/\s*\d+\s+completed")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder; ``faults`` say why it is not whole. ``epochs`` are finished, ``step`` counts all steps."""

    path: Path
    number: int
    faults: Tuple[str, ...]
    epochs: int = 0
    step: int = 0


def read_checkpoint(path: Path) -> Checkpoint:
    """What a checkpoint folder holds. Raises nothing for what is wrong with it."""
    faults = [f"{name} is missing" for name in (CONFIG, WEIGHTS, OPTIMIZER, STATE) if not (path / name).is_file()]
    read: Dict[str, Any] = {}
    readers: Tuple[Tuple[str, Callable[[Path], Any]], ...] = ((CONFIG, _json), (STATE, _json), (WEIGHTS, read_header))
    for name, reader in readers:
        try:
            read[name] = reader(path / name)
        except FileNotFoundError:
            pass
        except FindingError as problem:
            faults += [finding.message for finding in problem.findings]
        except (OSError, ValueError) as problem:
            faults.append(f"{name} cannot be read ({type(problem).__name__})")
    if (path / OPTIMIZER).is_file() and (path / OPTIMIZER).stat().st_size == 0:
        faults.append(f"{OPTIMIZER} is empty")
    state = read.get(STATE, {})
    try:
        epoch, local, step = (int(state.get(name, 0)) for name in ("epoch", "local_step", "global_step"))
    except (TypeError, ValueError):
        return Checkpoint(path, int(path.name), (*faults, f"{STATE} holds no numbers"))
    return Checkpoint(path, int(path.name), tuple(faults), epoch + (local == 0), step)


def checkpoints(directory: Path) -> List[Checkpoint]:
    """The checkpoints of a training by their number; links such as a "best" one are left out. Raises OSError."""
    paths = [path for path in directory.iterdir() if path.name.isdigit() and path.is_dir() and not path.is_symlink()]
    return sorted((read_checkpoint(path) for path in paths), key=lambda checkpoint: checkpoint.number)


def judge_run(directory: Path, log: str = "", acceptance: Optional[Mapping[str, Any]] = None) -> Judgement:
    """A training's folder, with its log where there is one, and the acceptance that was measured later.

    Values: ``resume_from`` (the newest whole checkpoint), ``order`` (all, by number), ``skipped`` (those that are not
    whole), ``epochs_done``, ``newest_saved_epoch``, ``warmup_steps``, ``progress_in_warmup``, ``steps_done``; each only
    where the folder tells it. Raises OSError, and ValueError for a settings file that is no JSON object.
    """
    settings = _json(directory / SETTINGS) if (directory / SETTINGS).is_file() else {}
    found = checkpoints(directory)
    whole = [checkpoint for checkpoint in found if not checkpoint.faults]
    values: Dict[str, Any] = {}
    findings = [_incomplete(checkpoint, whole) for checkpoint in found if checkpoint.faults]
    if found:
        values["resume_from"] = str(whole[-1].path) if whole else None
        values["order"] = [str(checkpoint.path) for checkpoint in found]
        values["skipped"] = [str(checkpoint.path) for checkpoint in found if checkpoint.faults]
    done = [int(number) for number in _EPOCH_DONE.findall(log)]
    if done:
        saved = max((checkpoint.epochs for checkpoint in whole), default=0)
        values.update(epochs_done=max(done), newest_saved_epoch=saved)
        findings += _unsaved_epochs(max(done), saved, settings)
    steps = _last_step(directory / METRICS)
    if steps is not None:
        values["steps_done"] = steps
        findings += _skipped_batches(whole, steps)
        findings += _warmup(steps, settings, values)
    findings += _samples(settings, acceptance)
    return Judgement(tuple(findings), values)


def _incomplete(checkpoint: Checkpoint, whole: List[Checkpoint]) -> Finding:
    older = [other for other in whole if other.number < checkpoint.number]
    fix = f"Go on from {older[-1].path.name}, which is whole." if older else "Start the training again."
    reasons = "; ".join(checkpoint.faults)
    message = f"Checkpoint {checkpoint.path.name} is not whole, so nothing can go on from it: {reasons}."
    path = str(checkpoint.path)
    return error("checkpoint_incomplete", message, path=path, actual=list(checkpoint.faults), fix=fix)


def _unsaved_epochs(done: int, saved: int, settings: Mapping[str, Any]) -> Iterator[Finding]:
    if saved < done:
        why = " save_best keeps the best epoch and removes the newest." if settings.get("save_best") else ""
        yield warning(
            "last_epoch_not_saved",
            f"{done} epochs are finished and the newest saved one is {saved}.{why}",
            path=SETTINGS,
            expected=done,
            actual=saved,
            fix="Keep the newest checkpoint beside the best one; what came after the saved one has to run again.",
        )


def _skipped_batches(whole: List[Checkpoint], steps: int) -> Iterator[Finding]:
    """A position that is ahead of the steps that were made comes from counting batches when they are fetched."""
    if whole and whole[-1].step > steps:
        newest = whole[-1]
        yield error(
            "resume_skips_batches",
            f"Checkpoint {newest.path.name} says step {newest.step}, and {steps} steps were made: going on from it "
            f"leaves {newest.step - steps} batches out.",
            path=str(newest.path / STATE),
            expected=steps,
            actual=newest.step,
            fix="Set the position back to the steps that were made.",
        )


def _warmup(steps: int, settings: Mapping[str, Any], values: Dict[str, Any]) -> Iterator[Finding]:
    warmup = settings.get("warmup_steps")
    if warmup is None and "warmup_ratio" in settings and "total_steps" in settings:
        warmup = settings["warmup_ratio"] * settings["total_steps"]
    if not warmup:
        return
    values.update(warmup_steps=warmup, progress_in_warmup=steps / warmup)
    if steps < warmup:
        yield warning(
            "warmup_dominates",
            f"Step {steps} is still in the warm-up of {warmup:.0f} steps: the learning rate is near zero, and a flat "
            "loss proves nothing.",
            path="warmup_ratio" if "warmup_ratio" in settings else "warmup_steps",
            expected=steps,
            actual=round(warmup),
            fix="Judge the loss after the warm-up, or make it a few percent of the steps that will be run.",
        )


def _samples(settings: Mapping[str, Any], acceptance: Optional[Mapping[str, Any]]) -> Iterator[Finding]:
    length = (acceptance or {}).get("mean_acceptance_length")
    seen = "" if length is None else f" Acceptance length {length} was measured."
    samples = settings.get("num_samples")
    if samples is not None and samples < FEW_SAMPLES:
        yield warning(
            "training_data_small",
            f"The drafter was trained on {samples} samples; sets below {FEW_SAMPLES} stay low.{seen}",
            path="num_samples",
            expected=FEW_SAMPLES,
            actual=samples,
            fix="Train on more samples.",
        )
    if settings.get("responses_regenerated") is False:
        yield warning(
            "responses_not_regenerated",
            f"The answers of the training set are not the target's own, and a drafter imitates its target.{seen}",
            path="responses_regenerated",
            expected=True,
            actual=False,
            fix="Have the target answer the prompts and train on that.",
        )


def judge_frequencies(counted: Mapping[str, Any], target: str, dataset: Mapping[str, Any]) -> Judgement:
    """Whether a file of token frequencies is of this target and data set, or would give a foreign draft vocabulary.

    ``counted`` says what the file was made of: ``path``, ``target``, ``dataset_sha256``, ``mtime``; ``dataset`` has
    ``sha256`` and ``mtime`` (ISO times).
    """
    reasons = []
    if counted.get("target") != target:
        reasons.append(f"it was made for {counted.get('target')}, not for {target}")
    if counted.get("dataset_sha256") != dataset.get("sha256"):
        reasons.append("its data set has another content")
    elif str(counted.get("mtime", "")) < str(dataset.get("mtime", "")):
        reasons.append("it is older than the data set")
    if not reasons:
        return Judgement()
    return Judgement(
        (
            warning(
                "vocab_map_stale",
                f"{counted.get('path')} does not belong to this training: {'; '.join(reasons)}. The draft vocabulary "
                "would miss what this target writes.",
                path=str(counted.get("path")),
                expected=target,
                actual=counted.get("target"),
                fix="Count the tokens of this data set again.",
            ),
        )
    )


def _last_step(path: Path) -> Optional[int]:
    """The highest step of a metrics file; a half last line is left out."""
    if not path.is_file():
        return None
    steps = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                steps.append(int(json.loads(line)["step"]))
            except (ValueError, KeyError, TypeError):
                continue
    return max(steps, default=None)


def _json(path: Path) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        value = json.load(file)
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return value
