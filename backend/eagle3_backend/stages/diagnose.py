"""diagnose: is the engine running the drafter that was trained, and if so, why is its acceptance what it is?

The bench's requests are replayed in plain torch. Where every verify step is predicted, the engine is cleared and the
acceptance is the drafter's own. Where it is not, drafters with one mistake each are replayed in its place, and the one
that predicts the engine is named. Controls that must fail are part of every report.

Without a campaign it takes what a running server answered, and the directories of drafter and target. That server may
compute in another dtype than float32, which it does not tell: then steps between near words differ, and no proof is
possible, only the exclusion of every known mistake.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    subject = of_server(context) if "requests" in context.inputs else of_bench(context)
    report = Diagnosis(context, subject).report()
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


@dataclass(frozen=True)
class Subject:
    """What is judged: the record of an engine, the drafter that it should run, and the target.

    ``served`` is what the directory at hand says otherwise than the drafter that was trained; ``exact`` that the engine
    computed in float32; ``drafter`` are words for the reference.
    """

    config: dict[str, Any]
    model: Path
    reference: ReferenceDrafter
    requests: list[Request]
    depth: int
    served: list[Finding]
    exact: bool
    drafter: str


def of_bench(context: StageContext) -> Subject:
    """The campaign's own drafter and bench. Raises FindingError."""
    bench = json.loads((context.inputs["comparison"] / "bench.json").read_text(encoding="utf-8"))
    recipe = bench["recipe"]
    if recipe["dtype"] != "float32" or recipe["temperature"] != 0.0:
        raise FindingError(_not_comparable(recipe))
    target = read_target(context.inputs["target"])
    requests = requests_of(bench, context.parameters.requests)
    if not requests:
        raise FindingError(_nothing_to_replay(context.inputs["comparison"]))
    reference = reference_of(context, target, recipe["layout"])
    served = differences(reference, context.inputs["drafter"] / recipe["layout"], target.config)
    model, depth = Path(target.facts["model"]), int(recipe["depth"])
    return Subject(target.config, model, reference, requests, depth, served, True, "the drafter that was trained")


def of_server(context: StageContext) -> Subject:
    """Answers of a running server, with the directories of a drafter and of its target. Raises FindingError."""
    told = json.loads(context.inputs["requests"].read_text(encoding="utf-8"))
    model = context.inputs["target"]
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    reference = of_directory(context.inputs["drafter"], config)
    kept = told["requests"][: context.parameters.requests]
    requests = [Request(row["id"], row["prompt_tokens"], row["tokens"], row["accepted"]) for row in kept]
    exact = told.get("dtype") == "float32"
    return Subject(config, model, reference, requests, int(told["depth"]), [], exact, "this drafter")


class Diagnosis:
    """The replay of one record and what follows from it."""

    def __init__(self, context: StageContext, subject: Subject) -> None:
        self.context = context
        self.subject = subject
        self.depth, self.requests, self.reference = subject.depth, subject.requests, subject.reference
        layers = Target.of(subject.config).layers
        assert layers is not None
        self.candidates = hypotheses(self.reference, layers)
        self._states = TargetStates(subject.model, needed_layers(self.reference, self.candidates))

    def report(self) -> dict[str, Any]:
        """Everything that was found, plain JSON."""
        # The same weights under a shuffled map: a method that takes them for the drafter proves nothing.
        mixed = replace(self.reference, target_ids=self.reference.target_ids.roll(1))
        summary, shuffled, *others = self._replay([self.reference, mixed, *(each.drafter for each in self.candidates)])
        tried = sorted(zip(self.candidates, others, strict=True), key=lambda entry: -entry[1]["equal_share"])
        engine = self._engine(summary, tried)
        if engine[0].severity is Severity.ERROR:
            # A difference that lies on disk is better evidence than the likeness of a replay.
            findings = [*self.subject.served, *engine]
        else:
            # It changed no step of these requests; of longer ones it might.
            findings = [*engine, *(replace(each, severity=Severity.WARNING) for each in self.subject.served)]
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
        try:
            models = [drafter.model(self._states.embedding) for drafter in drafters]
        except RuntimeError as problem:
            raise FindingError(_does_not_load(problem)) from problem
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
        if not self.subject.exact and share >= BROKEN and share > explained["equal_share"]:
            return [_likely(summary, explained["equal_share"])]
        if explained["equal_share"] >= NAMED and explained["equal_share"] > share:
            return [
                error(
                    best.code,
                    f"The engine {best.words}: that predicts {explained['equal_share']:.1%} of its verify steps, "
                    f"{self.subject.drafter} {share:.1%}.",
                    path=best.path,
                    expected=summary["predicted"],
                    actual=summary["observed"],
                    fix=best.fix,
                )
            ]
        return [
            error(
                "engine_runs_another_drafter",
                f"The engine does not run {self.subject.drafter}: plain torch predicts {share:.1%} of its verify "
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


def _does_not_load(problem: RuntimeError) -> Finding:
    return error(
        "drafter_shape_mismatch",
        f"The drafter's weights do not fit its config: {' '.join(str(problem).split())[:400]}",
        path="drafter",
        fix="eagle3-tui check DIR --target DIR names the key; take config and weights from the same export.",
    )


def _likely(summary: dict[str, Any], best: float) -> Finding:
    return warning(
        "engine_likely_runs_the_drafter",
        f"Plain torch predicts {summary['equal_share']:.1%} of {summary['steps']} verify steps with this drafter, and "
        f"with no known mistake more than {best:.1%}. A server in bfloat16 decides otherwise between near words; that "
        "is the rest, or a difference that is in no list.",
        path="endpoint",
        expected=CLEARED,
        actual=summary["equal_share"],
        fix="For a proof start the server with --dtype float32 and diagnose again.",
    )


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
