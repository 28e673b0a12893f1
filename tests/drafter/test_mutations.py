"""Single faults and single harmless changes, put into the usual drafter and into published ones with tiny weights.

The catalogues say which is which; a fault counts as found when an alarm, an error or a warning, names its field. What
the real engine does with a part of them is asked in `tests/engines_e2e`.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eagle3_backend.drafter.aux_layers import default_layers
from eagle3_backend.drafter.checks import check
from eagle3_backend.drafter.config import LLAMA, QWEN3
from eagle3_backend.drafter.convert import convert_config
from eagle3_backend.drafter.reading import read_config
from eagle3_backend.findings import Finding, FindingError, Severity

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("EAGLE3_REFERENCE_CONFIGS") or HERE.parents[2] / "shared" / "reference-configs")
SEED = 3
FAULTS, HARMLESS = 1000, 600
"""How many are drawn for each engine."""

SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 96,
    "num_hidden_layers": 1,
}
LAYERS = 24
IDS = "eagle_aux_hidden_state_layer_ids"
ORDER = ["", *(severity.value for severity in (Severity.INFO, Severity.WARNING, Severity.ERROR))]


@dataclass(frozen=True)
class Subject:
    """A right drafter and its target's config."""

    name: str
    checkpoint: Any
    target: dict[str, Any]

    def told(self, engine: str, checkpoint: Any) -> list[Finding]:
        return check(checkpoint.config, engine, target=self.target, inventory=checkpoint.inventory())


@pytest.fixture(scope="module")
def subjects(drafters) -> list[Subject]:
    own = [Subject(f"usual-{way}", drafters.checkpoint(layout=way), drafters.TARGET) for way in ("flat", "nested")]
    return [*own, *published(drafters)]


def published(drafters: Any) -> Iterator[Subject]:
    """What was published, small, before a target that it was trained for, in both layouts.

    Rotary embedding, position table, flags, head size and vocabulary are those of each file; where one leaves its aux
    layers open, they are the default of its target. Classes that `drafters` has no weights for are left out.
    """
    paths = sorted(path for path in FOLDER.glob("*.json") if not path.stem.startswith("target-"))
    if not paths:
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing(f"no reference configs at {FOLDER}: set EAGLE3_REFERENCE_CONFIGS")
    for path in paths:
        small = shrunk(json.loads(path.read_text(encoding="utf-8")))
        try:
            drafter = read_config(small).drafter
        except FindingError:
            continue  # one is published in part
        if drafter.draft_class not in (LLAMA, QWEN3):
            continue
        target = {
            **drafters.TARGET,
            "num_hidden_layers": LAYERS,
            "max_position_embeddings": drafter.max_position_embeddings,
            "rope_theta": drafter.rope.theta,
            "rope_scaling": drafter.rope.scaling,
        }
        small[IDS] = list(default_layers(LAYERS))
        for layout in ("flat", "nested"):
            config = convert_config(small, layout, target, verifier="org/target").config
            whole = read_config(config, target).drafter
            tensors = drafters.checkpoint(whole, layout, target)
            yield Subject(f"{path.stem}-{layout}", drafters.Checkpoint(config, tensors.tensors, tensors.values), target)


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """The same drafter with tiny sizes; heads that are not their share of the width stay that."""
    layer = config.get("transformer_layer_config", config)
    quotient = layer.get("hidden_size", 0) // layer.get("num_attention_heads", 1)
    odd = layer.get("head_dim") not in (None, quotient)
    whole = config.get("draft_vocab_size", layer.get("vocab_size")) == layer.get("vocab_size")
    layer.pop("eagle_config", None)
    layer.update(SIZES, head_dim=16 if odd else 8)
    config.pop("target_hidden_size", None)
    config["draft_vocab_size"] = 96 if whole else 40
    return config


def suits(engine: str, subject: Subject) -> bool:
    """Whether the engine serves this drafter at all: SGLang reads flat files without a norm in the residual."""
    config = subject.checkpoint.config
    able = not subject.checkpoint.nested and not config["norm_before_residual"]
    return engine == "vllm" or (able and config["architectures"] == ["LlamaForCausalLMEagle3"])


def names(finding: Finding, field: str) -> bool:
    return any(field in text for text in (finding.path, finding.message, finding.fix))


def worst_of(findings: list[Finding]) -> int:
    return max((ORDER.index(finding.severity.value) for finding in findings), default=0)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_nothing_is_told_of_the_unspoiled(subjects, engine) -> None:
    suited = [subject for subject in subjects if suits(engine, subject)]
    assert len(suited) >= 2
    told = {subject.name: subject.told(engine, subject.checkpoint) for subject in suited}
    assert {name: findings for name, findings in told.items() if findings} == {}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_faults_are_found_and_harmless_changes_are_not(
    subjects, engine, drafter_faults, harmless_changes, capsys
) -> None:
    suited = [subject for subject in subjects if suits(engine, subject)]
    draw = random.Random(SEED)
    faults = drawn(draw, FAULTS, drafter_faults.faults_for, engine, suited)
    harmless = drawn(draw, HARMLESS, harmless_changes.changes_for, engine, suited)

    missed, found = [], 0
    for subject, fault, spoiled in faults:
        alarms = [one for one in subject.told(engine, spoiled) if one.severity is not Severity.INFO]
        if any(names(finding, fault.field) for finding in alarms):
            found += 1
        else:
            missed.append((subject.name, fault.name, [finding.code for finding in alarms]))
    wrong = []
    for subject, change, changed in harmless:
        findings = subject.told(engine, changed)
        if worst_of(findings) > ORDER.index(change.worst):
            wrong.append((subject.name, change.name, [finding.code for finding in findings]))

    precision, recall = found / (found + len(wrong)), found / len(faults)
    with capsys.disabled():
        kinds = Counter(fault.name for _, fault, _ in faults), Counter(change.name for _, change, _ in harmless)
        print(
            f"\n{engine}: {len(faults)} faults of {len(kinds[0])} kinds, {len(harmless)} harmless changes of "
            f"{len(kinds[1])} kinds, {len(suited)} drafters: precision {precision:.3f}, recall {recall:.3f}"
        )
    assert len(faults) >= 300
    assert min(precision, recall) >= 0.95, (missed, wrong)
    assert wrong == [], "an alarm where nothing is wrong"
    assert missed == [], "a fault of the catalogue that is not told"


def drawn(draw: random.Random, number: int, every: Any, engine: str, suited: list[Subject]) -> list[tuple]:
    """So many of all mutations of all drafters, each kind of them at least once."""
    pool = [
        (subject, entry, made)
        for subject in suited
        for entry, made in every(engine, subject.checkpoint, subject.target)
    ]
    draw.shuffle(pool)
    first = list({entry.name: (subject, entry, made) for subject, entry, made in pool}.values())
    taken = {id(made) for _, _, made in first}
    return [*first, *(one for one in pool if id(one[2]) not in taken)][: max(number, len(first))]
