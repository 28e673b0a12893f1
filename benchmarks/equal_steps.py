"""Row 14: acceptance length on published prompts after equal data and optimizer steps, ours against speculators 0.9.0.

EAGLE3_BENCH_CAMPAIGN names WORKSPACE/CAMPAIGN of a finished campaign with a bench over 120 published prompts. The first
300 of its training conversations are the data. Each trainer runs as the stage runs it, once over the data, for three
seeds and two forms of the drafter: EAGLE-3, and EAGLE-3.1 (a norm for each aux state, the next step takes the normed
state). What is equal and what is a trainer's own:

- Equal: conversations, their states, target, draft vocabulary, form of the drafter, epochs, unrolled steps at most,
  number of optimizer steps (speculators' packing into rows of 512 tokens gives it, ours is cut to as many), bfloat16
  products, clipping, frozen embedding and head, loss (KL), the learning rates that may be tried with the first seed.
  From `BEGIN` on the next rate is tried, up or else down, as long as it drafts longer from the held-out conversations
  (plain torch); a trainer gets the best.
- speculators' own, its defaults: Muon with weight decay 0.1, a linear schedule with 1 % warm-up, all unrolled steps of
  the same weight. Its default form (window, norm before residual, one norm before fc) is not asked for.
- Ours, the defaults of the stage: Muon with weight decay 0.05, a cosine with 3 % warm-up, the norms' gains at ten times
  the rate, unrolled step k in a share 0.5 ** k of the optimizer steps.

``native_fitted`` is what the stage makes: it starts from the best linear drafter of the same data. Of it the row asks
for an interval above 1 in both forms. ``native`` is a control, which is told and not asked for: it starts from the
random numbers that speculators starts from with the same seed (see `first_weights`), so it tells how much of a lead
is of the start and how much of the training.

The target's greedy answers (float32) to 120 published prompts that no training saw stand in the campaign's bench; a
drafter's verify steps over them are computed in plain torch. With the first seed the real vLLM answers 40 of them
again, and its verify steps are compared with those of plain torch one by one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from campaign_inputs import Campaign, campaign, first_of
from drafted_answers import Reader, agreement, drafted, served
from first_weights import first_weights
from measuring import ROOT, row
from paired_ratio import length, paired_ratio
from peers import cpu_environment
from trainers import attempt

from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.reference_drafter import ReferenceDrafter, of_checkpoint
from eagle3_backend.stages.training_data import read_data
from eagle3_backend.stages.training_rows import grouped, order_of

FORMS: dict[str, dict[str, Any]] = {"eagle3": {}, "eagle31": {"fc_norm": True, "norm_output": True}}
SEEDS = (0, 1, 2)
RATES = (1e-3, 3e-3, 6e-3, 1e-2)
"""Learning rates that may be tried; the first is speculators' default, the second ours."""
BEGIN = {"speculators": 3e-3, "native": 3e-3, "native_fitted": 1e-3}
"""Where trying begins: the better of those two rates."""
CONVERSATIONS, EPOCHS, DEPTH = 300, 1, 3
PEER = {
    "trainer": "speculators",
    "batch_rows": 512,
    "step_decay": 1.0,
    "schedule": "linear",
    "warmup": 0.01,
    "weight_decay": 0.1,
}
TRAINERS = ("speculators", "native", "native_fitted")
ASKED = "native_fitted"
"""Whose drafters have to be better than speculators'."""
PROMPTS, CHECKED = 120, 40
RESAMPLES, SEED = 2000, 14


@dataclass(frozen=True)
class Trained:
    """A drafter that came out of a training: checkpoint, optimizer steps, CPU seconds of the stage."""

    checkpoint: Path
    steps: int
    cpu_seconds: float


@dataclass(frozen=True)
class Choice:
    """A trainer's drafters of one form, by seed, and what it drafted from held-out rows at each learning rate."""

    rate: float
    held_out: dict[float, float]
    drafters: tuple[Trained, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "learning_rate": self.rate,
            "held_out": {str(rate): length for rate, length in self.held_out.items()},
            "steps": [trained.steps for trained in self.drafters],
            "cpu_seconds": [trained.cpu_seconds for trained in self.drafters],
        }


class Comparison:
    """All trainings on one campaign; what is whole in ``folder`` is not made again."""

    def __init__(self, source: Campaign, folder: Path) -> None:
        self.source, self.folder = source, folder
        store = first_of(source.store, folder / "store", CONVERSATIONS)
        self.inputs = {"target": str(source.target), "store": str(store), "vocab": str(source.vocab)}
        self.python = cpu_environment.main("speculators")
        self._peers: dict[tuple[str, int], Trained] = {}

    def choice(self, trainer: str, form: str) -> Choice:
        """Try learning rates with the first seed, then take the best one for all seeds."""
        lengths = climbed(lambda rate: self._held_out(self.trained(trainer, form, SEEDS[0], rate)), BEGIN[trainer])
        rate = best(lengths)
        return Choice(rate, lengths, tuple(self.trained(trainer, form, seed, rate) for seed in SEEDS))

    def trained(self, trainer: str, form: str, seed: int, rate: float) -> Trained:
        """One training; ours take as many optimizer steps as speculators' of the same seed."""
        values = {**FORMS[form], "seed": seed, "learning_rate": rate, "epochs": EPOCHS, "ttt_steps": DEPTH}
        if trainer == "speculators":
            found = self._peers[form, seed] = self._train({**values, **PEER}, self.python)
            return found
        # Its steps and its first weights do not depend on the rate: take one that is there.
        peer = self._peers.get((form, seed)) or self.trained("speculators", form, seed, BEGIN["speculators"])
        values["batch_rows"] = rows_for(peer.steps, Path(self.inputs["store"]), seed)
        if trainer == "native":
            values["start_from"] = str(self._first_weights(peer.checkpoint, form, seed))
        return self._train(values, sys.executable)

    def _train(self, values: dict[str, Any], python: str) -> Trained:
        output, summary = attempt(self.folder, "train", self.inputs, values, python)
        print(f"{values}: {summary['steps']} steps, {summary['cpu_seconds']} CPU seconds", file=sys.stderr, flush=True)
        return Trained(output, summary["steps"], summary["cpu_seconds"])

    def _first_weights(self, checkpoint: Path, form: str, seed: int) -> Path:
        """The directory of the weights that speculators' training began with, in our terms."""
        made_by = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))["made_by"]
        spec = self.folder / "runs" / made_by["run"] / str(made_by["attempt"])
        target, store = Path(self.inputs["target"]), Path(self.inputs["store"])
        return first_weights(self.python, spec, target, store, self.folder / "starts" / f"{form}-{seed}")

    def _held_out(self, trained: Trained) -> float:
        inputs = {**self.inputs, "checkpoint": str(trained.checkpoint)}
        _, report = attempt(self.folder, "evaluate", inputs, {"depth": DEPTH}, sys.executable)
        return float(report["acceptance_length"]["mean"])

    def directory(self, trained: Trained) -> Path:
        """The drafter as engines read it."""
        inputs = {"target": self.inputs["target"], "vocab": self.inputs["vocab"], "checkpoint": str(trained.checkpoint)}
        output, _ = attempt(self.folder, "export", inputs, {}, sys.executable)
        return output / "flat"


def best(lengths: Mapping[float, float]) -> float:
    """The learning rate that drafts longest."""
    return max(lengths, key=lambda each: lengths[each])


def climbed(measure: Callable[[float], float], begin: float) -> dict[float, float]:
    """What ``measure`` says of ``begin`` and of the `RATES` above it up to the first that is not better; where none is
    better, of those below it likewise."""
    lengths = {begin: measure(begin)}
    place = RATES.index(begin)
    for way in (RATES[place + 1 :], RATES[:place][::-1]):
        for rate in way:
            lengths[rate] = measure(rate)
            if best(lengths) != rate:
                break
        if best(lengths) != begin:
            break
    return lengths


def rows_for(steps: int, store: Path, seed: int) -> int:
    """The least `batch_rows` with which our training takes no more optimizer steps than ``steps``."""
    data = read_data(store, TrainParameters(ttt_steps=DEPTH))
    sizes = [len(entry.used) for entry in data.conversations]

    def taken(rows: int) -> int:
        return sum(len(list(grouped(order_of(seed, epoch, len(sizes)), sizes, rows))) for epoch in range(EPOCHS))

    return next(rows for rows in range(1, sum(sizes) + 1) if taken(rows) <= steps)


class Measurement:
    """Drafters over the published prompts of a campaign, as they are exported (bfloat16) and served (float32)."""

    def __init__(self, source: Campaign) -> None:
        self.source = source
        layers = json.loads((source.target / "facts.json").read_text(encoding="utf-8"))["aux_layers"]
        self.reader = Reader(source.model, layers)
        self.requests = source.answers

    def table(self, choice: Choice) -> list[list[tuple[int, int]]]:
        """Verify steps and accepted drafts, [seeds][prompts]."""
        return [drafted(self._reference(each), self.reader, self.requests, DEPTH) for each in choice.drafters]

    def checked(self, directories: Mapping[str, tuple[Path, Trained]]) -> dict[str, Any]:
        """Verify steps of the real vLLM beside those of plain torch, by name of drafter."""
        if self.source.engine is None:
            return {}
        kept = self.requests[:: len(self.requests) // CHECKED]
        folders = [folder for folder, _ in directories.values()]
        answers = served(self.source.engine, self.source.model, folders, kept, DEPTH)
        return {
            name: agreement(self._reference(trained), self.reader, answers[str(folder)], DEPTH)
            for name, (folder, trained) in directories.items()
        }

    def _reference(self, trained: Trained) -> ReferenceDrafter:
        return of_checkpoint(trained.checkpoint, self.source.vocab, torch.bfloat16)


def results() -> dict[str, dict[str, Any]]:
    source = campaign(PROMPTS)
    comparison = Comparison(source, ROOT / ".build" / "equal_steps")
    choices = {f"{form}_{trainer}": comparison.choice(trainer, form) for form in FORMS for trainer in TRAINERS}
    measurement = Measurement(source)
    tables = {name: measurement.table(choice) for name, choice in choices.items()}
    first = {name: choice.drafters[0] for name, choice in choices.items()}
    engine = measurement.checked({name: (comparison.directory(each), each) for name, each in first.items()})
    lengths = {name: round(length(table), 4) for name, table in tables.items()}
    ratios = {
        f"{form}_{trainer}": paired_ratio(tables[f"{form}_{trainer}"], tables[f"{form}_speculators"], RESAMPLES, SEED)
        for form in FORMS
        for trainer in TRAINERS[1:]
    }
    lows = {f"{name}_low": interval.low for name, interval in ratios.items()}
    return {
        "14": row(
            f"acceptance length on {PROMPTS} published prompts after {CONVERSATIONS} conversations and equal steps "
            f"({', '.join(FORMS)})",
            {name: lengths[name] for name in ratios},
            {name: lengths[name] for name in lengths if name not in ratios},
            {**{name: interval.mean for name, interval in ratios.items()}, **lows},
            {f"{form}_{ASKED}_low": 1.0 for form in FORMS},
            {
                "intervals": {name: interval.to_json() for name, interval in ratios.items()},
                "by_seed": {name: [round(length([each]), 4) for each in table] for name, table in tables.items()},
                "trainings": {name: choice.to_json() for name, choice in choices.items()},
                "vllm": engine,
            },
        )
    }
