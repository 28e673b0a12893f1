"""diagnose: is the engine running the drafter that was trained, and if so, why is its acceptance what it is?

The bench's requests are replayed in plain torch. Where every verify step is predicted, the engine is cleared and the
acceptance is the drafter's own. Where it is not, drafters with one mistake each are replayed in its place, and the one
that predicts the engine is named. Controls that must fail are part of every report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding, FindingError, Severity, error, info, warning
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.hypotheses import Hypothesis, hypotheses, needed_layers
from eagle3_backend.stages.reference_drafter import ReferenceDrafter, differences, of_checkpoint, of_directory
from eagle3_backend.stages.replay import Replayed, Request, TargetStates, replay, summary_of
from eagle3_backend.stages.target_head import TargetHead, read_target
from eagle3_backend.stages.train import use_all_cores

REPORT = "diagnosis.json"
SETS = ("published", "in_domain")
CLEARED = 0.999
"""Share of verify steps that the replay must predict for the engine to run the drafter at hand."""
BROKEN = 0.95
"""Share below which an engine certainly runs something else; a control has to fall below it."""
NAMED = 0.99
"""Share from which on a mistaken drafter explains the engine."""


def run(context: StageContext) -> None:
    """Replay, judge, write ``diagnosis.json``. Raises FindingError, Stopped."""
    use_all_cores()
    bench = json.loads((context.inputs["comparison"] / "bench.json").read_text(encoding="utf-8"))
    recipe = bench["recipe"]
    if recipe["dtype"] != "float32" or recipe["temperature"] != 0.0:
        raise FindingError(_not_comparable(recipe))
    target = read_target(context.inputs["target"])
    report = Diagnosis(context, target, bench).report()
    write_json(context.output / REPORT, report)
    for finding in report["findings"]:
        context.report(Finding.from_json(finding))
    print(json.dumps({key: report[key] for key in ("verdict", "replay", "controls")}), flush=True)
    context.finish({key: report[key] for key in ("verdict", "equal_share", "steps", "replay", "controls")})


def reference_of(context: StageContext, target: TargetHead, layout: str) -> ReferenceDrafter:
    """What was trained, where the drafter's manifest names it; else what the adopted directory means."""
    drafter = context.inputs["drafter"]
    manifest = json.loads((drafter / "manifest.json").read_text(encoding="utf-8"))
    made_from = manifest["inputs"]
    if "train" not in made_from:
        return of_directory(drafter / layout, target.config)
    campaign = drafter.parents[1]
    dtype = getattr(torch, manifest["summary"]["dtype"])
    return of_checkpoint(campaign / "train" / made_from["train"], campaign / "vocab" / made_from["vocab"], dtype)


class Diagnosis:
    """The replay of one bench and what follows from it."""

    def __init__(self, context: StageContext, target: TargetHead, bench: dict[str, Any]) -> None:
        self.context = context
        self.target = target
        self.depth = int(bench["recipe"]["depth"])
        self.requests = requests_of(bench, context.parameters.requests)
        if not self.requests:
            raise FindingError(_nothing_to_replay(context.inputs["comparison"]))
        layout = bench["recipe"]["layout"]
        self.reference = reference_of(context, target, layout)
        self.served = differences(self.reference, context.inputs["drafter"] / layout, target.config)
        layers = Target.of(target.config).layers
        assert layers is not None
        self.candidates = hypotheses(self.reference, layers)
        self._states = TargetStates(Path(target.facts["model"]), needed_layers(self.reference, self.candidates))

    def report(self) -> dict[str, Any]:
        """Everything that was found, plain JSON."""
        # The same weights under a shuffled map: a method that takes them for the drafter proves nothing.
        mixed = replace(self.reference, target_ids=self.reference.target_ids.roll(1))
        summary, shuffled, *others = self._replay([self.reference, mixed, *(each.drafter for each in self.candidates)])
        tried = sorted(zip(self.candidates, others, strict=True), key=lambda entry: -entry[1]["equal_share"])
        engine = self._engine(summary, tried)
        if engine[0].severity is Severity.ERROR:
            # A difference that lies on disk is better evidence than the likeness of a replay.
            findings = [*self.served, *engine]
        else:
            # It changed no step of these requests; of longer ones it might.
            findings = [*engine, *(replace(each, severity=Severity.WARNING) for each in self.served)]
        controls = _controls(shuffled, tried)
        findings += [_control_failed(name, entry) for name, entry in controls.items() if not entry["failed_as_it_must"]]
        return {
            "verdict": findings[0].code,
            "steps": summary["steps"],
            "equal_share": summary["equal_share"],
            "replay": summary,
            "hypotheses": [
                {"code": each.code, "words": each.words, "equal_share": share["equal_share"]} for each, share in tried
            ],
            "controls": controls,
            "findings": [finding.to_json() for finding in findings],
        }

    def _replay(self, drafters: Sequence[ReferenceDrafter]) -> list[dict[str, Any]]:
        """The summary of each drafter: of the first over every request, of the others over as many as are ``tried``."""
        embedding = self.target.embedding.float()
        models = [drafter.model(embedding) for drafter in drafters]
        found: list[list[Replayed]] = [[] for _ in drafters]
        for number, request in enumerate(self.requests):
            streams = self._states([*request.prompt_tokens, *request.tokens])
            for place in range(len(drafters) if number < self.context.parameters.tried else 1):
                target_ids = drafters[place].target_ids
                found[place].append(replay(models[place], target_ids, streams, request, self.depth))
            self.context.journal.progress(number + 1, len(self.requests), "requests")
            self.context.leave_if_asked()
        return [summary_of(entries, self.depth) for entries in found]

    def _engine(self, summary: dict[str, Any], tried: Sequence[tuple[Hypothesis, dict[str, Any]]]) -> list[Finding]:
        share, steps = summary["equal_share"], summary["steps"]
        if share >= CLEARED:
            length = summary["observed"]["acceptance_length"]
            return [
                info(
                    "engine_runs_the_drafter",
                    f"The engine runs this drafter: {summary['equal']} of {steps} verify steps are those that plain "
                    f"torch predicts. Its acceptance length of {length:.2f} is the drafter's own.",
                    path="bench",
                    expected=steps,
                    actual=summary["equal"],
                    fix="Better data or longer training raise it; a change of the engine's options will not.",
                )
            ]
        best, explained = tried[0]
        if explained["equal_share"] >= NAMED and explained["equal_share"] > share:
            return [
                error(
                    best.code,
                    f"The engine {best.words}: that predicts {explained['equal_share']:.1%} of its verify steps, the "
                    f"drafter that was trained {share:.1%}.",
                    path=best.path,
                    expected=summary["predicted"],
                    actual=summary["observed"],
                    fix=best.fix,
                )
            ]
        return [
            error(
                "engine_runs_another_drafter",
                f"The engine does not run the drafter that was trained: plain torch predicts {share:.1%} of its verify "
                f"steps, and no known mistake explains the rest (the nearest, {explained['equal_share']:.1%}: it "
                f"{best.words}).",
                path="drafter",
                expected=summary["predicted"],
                actual=summary["observed"],
                fix="Compare the served directory with the exported one, weights included, and export again.",
            )
        ]


def _controls(
    shuffled: dict[str, Any], tried: Sequence[tuple[Hypothesis, dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Drafters that are known to be wrong. Aux layers at both ends of the target cannot be moved: no such control."""
    length = shuffled["predicted"]["acceptance_length"]
    controls = {"shuffled_d2t": {"acceptance_length": length, "failed_as_it_must": length < 1.05}}
    shifted = [share["equal_share"] for each, share in tried if each.code == "aux_layers_offset"]
    if shifted:
        share = min(shifted)
        controls["aux_layers_off_by_one"] = {"equal_share": share, "failed_as_it_must": share < BROKEN}
    return controls


def requests_of(bench: dict[str, Any], limit: int) -> list[Request]:
    """The first ``limit`` drafted requests of a bench with at least two verify steps, both prompt sets in turn."""
    rows = {name: [row for row in bench["answers"] if row["set"] == name and len(row["accepted"]) > 1] for name in SETS}
    mixed = [rows[name][place] for place in range(limit) for name in SETS if place < len(rows[name])]
    return [Request(row["id"], row["prompt_tokens"], row["tokens"], row["accepted"]) for row in mixed[:limit]]


def _not_comparable(recipe: dict[str, Any]) -> Finding:
    return error(
        "replay_needs_float32",
        "Verify steps can be predicted for greedy answers in float32 only: rounding decides between near words else.",
        path="bench.dtype",
        expected={"dtype": "float32", "temperature": 0.0},
        actual={"dtype": recipe["dtype"], "temperature": recipe["temperature"]},
        fix="Run bench with dtype float32, on few prompts if need be.",
    )


def _nothing_to_replay(bench: Path) -> Finding:
    return error(
        "replay_without_requests",
        "The bench holds no request with accepted drafts of each verify step.",
        path=str(bench),
        expected="answers of a server with the drafter",
        actual=0,
        fix="Run bench again with an engine that tells them (vLLM 0.32 or newer).",
    )


def _control_failed(name: str, entry: dict[str, Any]) -> Finding:
    return warning(
        "control_did_not_fail",
        f"The control '{name}' looks right although it is wrong: this replay proves nothing.",
        path=name,
        actual=entry,
        fix="Replay more requests; answers that are loops cannot tell drafters apart.",
    )
