"""What the real vLLM does with spoiled drafters, beside what the checks say and how the diagnosis names it.

Faults of `drafter_faults` are put into the demo drafter one at a time. The engine refuses such a drafter, serves it as
if nothing were wrong (every verify step is the one that plain torch predicts for the unspoiled one), or serves another
drafter. That is the truth which the checks' verdicts are held against.
"""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from eagle3_backend.drafter.checks import check
from eagle3_backend.findings import Severity, worst

pytestmark = pytest.mark.engines

REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "tests" / "support"
SEED, SAMPLE = 20, 1
"""Faults drawn for each layout, beside those whose name has to be found."""
PROMPTS, NEW_TOKENS = 10, 32
CLEARED, BROKEN = 0.999, 0.95

NAMED = {
    "flat": {
        "d2t_left_at_zero": ("d2t_placeholder",),
        "d2t_with_target_ids": ("d2t_absolute_ids",),
        "without_d2t": ("d2t_missing",),
        "without_lm_head.weight": ("lm_head_missing",),
        "ids_one_beside": ("aux_layers_offset",),
        "layers_of_the_target": ("draft_layer_count",),
        "norm_before_fc_flipped": ("flag_mismatch",),
        "fc_norm_flipped": ("flag_mismatch",),
        "input_of_eagle_1": ("flag_mismatch",),
        "head_dim_doubled": ("head_dim_mismatch",),
        "residual_normed": ("norm_before_residual_unsupported", "drafter_config_differs"),
        "fc_of_another_training": ("drafter_weights_differ",),
    },
    "nested": {"residual_not_told": ("norm_before_residual_unsupported", "drafter_config_differs")},
}
"""Single faults and the codes of which one has to name them, in the checks or in the diagnosis."""

UNSEEN = ("residual_normed", "fc_of_another_training")
"""Faults of values that fit every header: the diagnosis alone can name them."""

CONTRADICTIONS = (
    "t2d_all_true",
    "t2d_of_another_choice",
    "longer_t2d",
    "ids_in_falling_order",
    "bias_that_nobody_asked_for",
    "vocabulary_of_another_family",
)
"""Files that say two things: both maps differ, ids that no engine captures in this order, a tensor or a size beside the
rest. They are refused since nobody can know which half was meant; that vLLM took the half that was right here, when it
did, does not make the verdict wrong, so they are counted apart."""


@dataclass(frozen=True)
class Outcome:
    """One spoiled drafter: what the checks say of it, and what became of it in the engine.

    ``equal_share`` of the verify steps are those of the unspoiled drafter; None where the engine refused to serve.
    ``same_weights``: the engine holds norms, head and map of the unspoiled one; a few prompts do not touch all of them.
    """

    name: str
    severity: Severity | None
    told: tuple[str, ...]
    refused: str
    equal_share: float | None
    same_weights: bool
    named: tuple[str, ...]

    @property
    def serves_right(self) -> bool:
        return self.equal_share is not None and self.equal_share >= CLEARED and self.same_weights


@pytest.fixture(scope="module")
def outcomes(laptop, campaign, drafter_faults, read_real_drafter, tmp_path_factory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("spoiled")
    stages = laptop.stages()
    outputs = {name: Path(stages[name]["output"]) for name in ("setup", "target", "train", "vocab", "export", "bench")}
    target = json.loads((outputs["target"] / "config.json").read_text(encoding="utf-8"))
    spoiled = spoil(drafter_faults, read_real_drafter, outputs["export"], target, folder)
    environments = json.loads((outputs["setup"] / "manifest.json").read_text())["summary"]["environments"]
    request = {
        "target": json.loads((outputs["target"] / "facts.json").read_text(encoding="utf-8"))["model"],
        "checkpoint": str(outputs["train"]),
        "vocab": str(outputs["vocab"]),
        "artifact": str(outputs["target"]),
        "dtype": "bfloat16",
        "depth": 3,
        "new_tokens": NEW_TOKENS,
        "prompts": prompts_of(outputs["bench"]),
        "drafters": [str(folder / name) for name in spoiled],
    }
    (folder / "request.json").write_text(json.dumps(request))
    lab = printed(environments["vllm"]["python"], "engine_lab.py", folder / "request.json")
    (folder / "answers.jsonl").write_text("\n".join(json.dumps(entry) for entry in lab))
    replays = printed(
        environments["train"]["python"], "replay_lab.py", folder / "request.json", folder / "answers.jsonl"
    )
    refused = {Path(entry["drafter"]).name: entry["refused"] for entry in lab if "refused" in entry}
    replayed = {Path(entry["drafter"]).name: entry for entry in replays}
    weights = {Path(entry["drafter"]).name: entry.get("loaded") for entry in lab}
    assert set(refused) | set(replayed) == set(spoiled)
    found = {}
    for name, findings in spoiled.items():
        replay = replayed.get(name, {})
        told = tuple(each.code for each in findings if each.severity is not Severity.INFO)
        found[name] = Outcome(
            name=name,
            severity=worst(findings),
            told=told,
            refused=refused.get(name, ""),
            equal_share=replay.get("equal_share"),
            same_weights=weights[name] == weights["flat-unspoiled"],
            named=tuple(replay.get("codes", ())),
        )
    return found


def spoil(faults, read, export: Path, target: dict, folder: Path) -> dict[str, list]:
    """Write the drawn drafters to ``folder``; their findings by name. The unspoiled ones are among them."""
    draw, found = random.Random(SEED), {}
    for layout, named in NAMED.items():
        right = read(export / layout)
        applied = {fault.name: checkpoint for fault, checkpoint in faults.faults_for("vllm", right, target)}
        applied["residual_normed"], applied["fc_of_another_training"] = right.copy(), right.copy()
        applied["residual_normed"].config["norm_before_residual"] = True
        applied["fc_of_another_training"].reverse_rows("fc.weight")
        wanted = [*named, *draw.sample(sorted(set(applied) - set(named)), SAMPLE)]
        for name, checkpoint in [("unspoiled", right), *((name, applied[name]) for name in wanted)]:
            checkpoint.write(folder / f"{layout}-{name}")
            found[f"{layout}-{name}"] = check(
                checkpoint.config, "vllm", target=target, inventory=checkpoint.inventory()
            )
    return found


def prompts_of(bench: Path) -> list[list[int]]:
    answers = json.loads((bench / "bench.json").read_text(encoding="utf-8"))["answers"]
    return [row["prompt_tokens"] for row in answers if row["set"] == "published"][:PROMPTS]


def printed(python: str, script: str, *arguments: Path) -> list[dict]:
    ended = subprocess.run(
        [python, str(SUPPORT / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1500,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(arguments[0].parent),
            "PYTHONPATH": f"{REPOSITORY}/backend:{REPOSITORY}/kernels",
        },
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("layout", NAMED)
def test_the_unspoiled_drafter_raises_no_alarm_and_is_served_as_predicted(outcomes, layout) -> None:
    outcome = outcomes[f"{layout}-unspoiled"]
    assert set(outcome.told) <= {"verifier_path_local"}
    assert outcome.equal_share is not None and outcome.equal_share >= CLEARED
    assert outcome.named[0] == "engine_runs_the_drafter"


@pytest.mark.parametrize("name", [f"{layout}-{name}" for layout, named in NAMED.items() for name in named])
def test_a_fault_is_refused_before_launch_or_breaks_the_replay_and_is_named(outcomes, name) -> None:
    outcome = outcomes[name]
    layout, fault = name.split("-", 1)
    refused_before = outcome.severity is Severity.ERROR or outcome.refused
    assert refused_before or outcome.equal_share < BROKEN, outcome
    assert {*outcome.told, *outcome.named} & set(NAMED[layout][fault]), outcome


def test_verdicts_of_the_checks_agree_with_the_engine(outcomes) -> None:
    """An error has to stand for a drafter that is not served right; one that is not needs an error or a warning."""
    spoiled = [outcome for name, outcome in outcomes.items() if not name.endswith("unspoiled")]
    for outcome in spoiled:
        state = "refused" if outcome.refused else f"equal {outcome.equal_share:.4f}"
        state += "" if outcome.refused or outcome.same_weights else ", other weights"
        print(f"{outcome.name:52} {state:28} {outcome.severity and outcome.severity.value}: {', '.join(outcome.told)}")
    judged = [outcome for outcome in spoiled if outcome.name.split("-", 1)[1] not in (*CONTRADICTIONS, *UNSEEN)]
    errors = [outcome for outcome in judged if outcome.severity is Severity.ERROR]
    bad = [outcome for outcome in judged if not outcome.serves_right]
    precision = sum(not outcome.serves_right for outcome in errors) / len(errors)
    recall = sum(outcome.severity in (Severity.ERROR, Severity.WARNING) for outcome in bad) / len(bad)
    print(
        f"{len(judged)} faults (and {len(spoiled) - len(judged)} files that contradict themselves), {len(bad)} bad in"
    )
    print(f"the engine: precision of errors {precision:.3f}, recall {recall:.3f}")
    assert precision >= 0.95
    assert recall >= 0.95
