"""Training by another library, as it is: fed from our store, its figures under our names, its drafter as ours.

The library runs as a child of this stage, in an environment of its own (the profile's environment of its name). What
it prints is the run's log; its figures go into the journal. Its last or best checkpoint becomes the stage's artifact,
read by the same readers as any drafter, so that evaluate and export go on as after a training of ours.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.engines.training_log import TrainingLog
from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.stages.disk import check_forecast
from eagle3_backend.stages.foreign_inputs import Work
from eagle3_backend.stages.ranks import too_many
from eagle3_backend.stages.reference_drafter import ReferenceDrafter, of_directory
from eagle3_backend.stages.starting_drafter import foreign_embedding, fresh_config, start_of
from eagle3_backend.stages.store import open_store
from eagle3_backend.stages.target_head import TargetHead, read_target
from eagle3_backend.stages.training_data import Data, read_data
from eagle3_backend.stages.training_guards import doubts, input_faults
from eagle3_backend.stages.training_rows import shares
from eagle3_backend.stages.vocab import read_maps

KEEP_FREE = 1000**3
"""Disk space that the library's copy of the data leaves free, bytes."""
POSITION = "position.json"
WRITTEN = "written"


@dataclass(frozen=True)
class Position:
    """How far a training is: the epoch, optimizer steps in it, and optimizer steps of all epochs."""

    epoch: int = 0
    in_epoch: int = 0
    step: int = 0

    def after(self, figures: Figures) -> Position:
        """The position after a step with these figures."""
        if figures.step is None:
            return self
        in_epoch = self.in_epoch + 1 if figures.epoch == self.epoch else 1
        return Position(figures.epoch, in_epoch, figures.step)


@dataclass(frozen=True)
class Figures:
    """What a library told, under our names. ``step`` is the optimizer step, None for held-out rows."""

    step: int | None
    epoch: int
    values: dict[str, float]


class Library(Protocol):
    """A trainer of other people. ``cpu_patches`` is the module that it needs on a CPU, ``total`` its optimizer steps
    where they are known before it has packed its rows.

    ``write`` makes its copy of the data and calls ``leave`` now and then, which raises `Stopped` where that is asked.
    ``figures`` reads a line of its output. ``go_on`` readies its checkpoints for the next start, given where it was
    asked to end, and says what that costs; ``start`` is where they stand, ``result`` the drafter's directory.
    """

    name: str
    module: str
    cpu_patches: str

    @property
    def total(self) -> int | None: ...

    def doubts(self) -> list[Finding]: ...

    def write(self, leave: Callable[[], None]) -> None: ...

    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]: ...

    def figures(self, line: str) -> Figures | None: ...

    def go_on(self, position: Position | None) -> list[Finding]: ...

    def start(self) -> Position: ...

    def result(self) -> Path: ...


def run(context: StageContext) -> None:
    """Train with the library that the parameters name. Raises FindingError, Stopped."""
    work = prepare(context)
    library = library_of(work)
    context.refuse(*unfit(work), *missing(library, work), *library.doubts())
    write_inputs(context, library, work)
    position = _read_position(work)
    for finding in library.go_on(position):
        context.report(finding)
    reached = follow(context, library, work)
    take_result(context, library, work, reached)


def library_of(work: Work) -> Library:
    """The library that the parameters name."""
    module = importlib.import_module(f"eagle3_backend.stages.{work.parameters.trainer}_library")
    library: Library = module.LIBRARY(work)
    return library


def prepare(context: StageContext) -> Work:
    """The inputs of a training, through the same gates as one of ours. Raises FindingError."""
    parameters: TrainParameters = context.parameters
    target: TargetHead = read_target(context.inputs["target"])
    data: Data = read_data(context.inputs["store"], parameters)
    stamp = open_store(context.inputs["store"]).stamp
    context.refuse(*input_faults(target, stamp, context.inputs["vocab"], data))
    facts = shares(data.conversations)
    context.journal.note(f"{parameters.trainer} trains; {json.dumps(facts)}.")
    context.refuse(*doubts(facts, parameters))
    maps = read_maps(context.inputs["vocab"])
    config = fresh_config(target.config, stamp.layer_ids, len(maps[0]), parameters)
    start = start_of(context, target.config, config, maps[0] + torch.arange(len(maps[0])))
    if start and (differs := foreign_embedding(start, target.embedding)):
        context.report(differs)
    folder = context.output / "library"
    return Work(
        parameters, target, start.config if start else config, maps, data, folder, torch.cuda.device_count(), start
    )


def unfit(work: Work) -> Iterator[Finding]:
    """What no library of these can train with."""
    name = work.parameters.trainer
    if work.gpus and (crowded := too_many(work.parameters.processes, work.gpus)):
        yield crowded
    if not work.data.held_out:
        message = f"{name} measures on held-out conversations, and the store has none with a row to draft from."
        yield error("holdout_empty", message, fix="Set prompts.holdout to at least 1 and run again.")
    facts = work.target.facts
    if facts.get("logit_softcap") or facts.get("logit_scale", 1.0) not in (None, 1.0):
        message = f"{name} takes the target's logits as its head gives them; this target scales or caps them."
        yield error("target_unsupported", message, path="logit_scale", fix='Use trainer = "native".')


def missing(library: Library, work: Work) -> Iterator[Finding]:
    """What of the library is not in this environment, or not on this machine."""
    if importlib.util.find_spec(library.module) is None:
        yield error(
            "trainer_not_available",
            f"{library.name} is not in the environment of this stage ({sys.executable}).",
            path=f"environments.{library.name}",
            expected=library.module,
            fix=f'Adopt an environment that has it, or set = "{library.name}-cuda".',
        )
    elif not work.gpus and library.cpu_patches and importlib.util.find_spec(library.cpu_patches) is None:
        yield error(
            "trainer_needs_gpu",
            f"{library.name} as it is trains on a GPU, and torch sees none here.",
            path="stages.train.trainer",
            fix=f"Use a host with a GPU; for comparisons on a CPU, benchmarks/peers/cpu_environment.py "
            f"{library.name} builds an environment to adopt.",
        )


def write_inputs(context: StageContext, library: Library, work: Work) -> None:
    """The library's copy of the data; one that an earlier attempt finished is used again. Raises FindingError."""
    done = work.inputs / WRITTEN
    if done.is_file():
        return
    shutil.rmtree(work.inputs, ignore_errors=True)
    needed = sum(path.stat().st_size for path in context.inputs["store"].iterdir())
    check_forecast(context.output, needed, KEEP_FREE)
    work.inputs.mkdir(parents=True)
    library.write(context.leave_if_asked)
    done.touch()


def follow(context: StageContext, library: Library, work: Work) -> Position:
    """Run the library to its end; the position that it reached. Raises FindingError, and Stopped after it saved."""
    log, position, before = TrainingLog(), library.start(), time.monotonic()
    (work.folder / POSITION).unlink(missing_ok=True)
    process = _started(library, work)
    try:
        for line in _lines(context, process):
            if line is None:
                continue
            print(line, flush=True)
            log.feed(line)
            if (figures := library.figures(line)) is None:
                continue
            position = position.after(figures)
            context.journal.metric(position.step, **figures.values)
            if figures.step is not None:
                now = time.monotonic()
                context.journal.progress(position.step, library.total, "steps", 1 / max(now - before, 1e-9))
                before = now
            _check(figures, position.step)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        write_json(work.folder / POSITION, asdict(position))
    if context.stopping:
        raise Stopped
    if process.returncode:
        raise FindingError(*log.diagnose(process.returncode).findings)
    return position


def _started(library: Library, work: Work) -> subprocess.Popen[bytes]:
    # Everything it needs lies on this host already.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **library.environment()}
    argv = [sys.executable, *library.command()]
    print(shlex.join(argv), flush=True)
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=work.folder,
    )


def _lines(context: StageContext, process: subprocess.Popen[bytes]) -> Iterator[str | None]:
    """Its output line by line, and None now and then; a stop is handed on once, and the library saves then."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    rest, asked = b"", False
    while True:
        if context.stopping and not asked:
            asked = True
            process.send_signal(signal.SIGTERM)
        ended = process.poll() is not None
        rest += process.stdout.read() or b""
        *whole, rest = rest.replace(b"\r", b"\n").split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in ([*whole, rest] if ended else whole) if line.strip())
        if ended:
            return
        yield None
        time.sleep(0.1)


def _check(figures: Figures, step: int) -> None:
    """Stop at once on a loss that is none."""
    loss = figures.values.get("train/loss")
    if loss is not None and not math.isfinite(loss):
        fix = "Resume with a lower learning rate, or look at the states in the store."
        raise FindingError(error("loss_nan", f"Loss is {loss} at step {step}.", path=f"step {step}", fix=fix))
    if loss == 0:
        message = f"The loss is exactly zero at step {step}: no row is supervised or the teacher is the drafter."
        raise FindingError(error("loss_zero_constant", message, path=f"step {step}", actual=0.0))


def _read_position(work: Work) -> Position | None:
    try:
        return Position(**json.loads((work.folder / POSITION).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def take_result(context: StageContext, library: Library, work: Work, reached: Position) -> None:
    """Its drafter as the artifact of this stage: weights under our names in float32, and the canonical config."""
    from eagle3_backend.stages.train import CONFIG, WEIGHTS

    source = library.result()
    found = of_directory(source, work.target.config)
    problems = list(_differences(found, work))
    if problems:
        raise FindingError(*problems)
    weights = {
        name: tensor.float().contiguous()
        for name, tensor in found.tensors.items()
        # It is the target's own, which every reader has.
        if name != "embed_tokens.weight"
    }
    save_file(weights, context.output / WEIGHTS, metadata={"format": "pt"})
    write_json(context.output / CONFIG, work.config.to_json())
    shutil.rmtree(work.inputs)
    context.finish(
        {
            "trainer": library.name,
            "version": importlib.metadata.version(library.name),
            "steps": reached.step,
            "written_from": source.name,
            "peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        }
    )


def _differences(found: ReferenceDrafter, work: Work) -> Iterator[Finding]:
    """Where the drafter that came out is not the one that was asked for."""
    ids = work.maps[0] + torch.arange(len(work.maps[0]))
    if not torch.equal(found.target_ids, ids):
        yield _differs("d2t", "the draft vocabulary of this campaign", "another one")
    free = {"bos_token_id", "eos_token_id", "pad_token_id", "windows", "unnamed_aux_count"}
    for entry in fields(DrafterConfig):
        wanted, actual = getattr(work.config, entry.name), getattr(found.config, entry.name)
        if entry.name not in free and wanted != actual:
            yield _differs(entry.name, wanted, actual)
    if any(found.config.windows):
        yield _differs("windows", "full attention", str(found.config.windows))
    for name, tensor in found.tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            yield _differs(name, "finite values", "NaN or infinite values")


def _differs(path: str, expected: Any, actual: Any) -> Finding:
    message = f"The library's drafter is not the one that was asked for: {path} is {actual} instead of {expected}."
    return error("trainer_output_differs", message, path=path, expected=str(expected), actual=str(actual))
