"""bench: the target with and without its drafter, on prompts that training never saw.

Two engine starts. Single-stream speed is measured in pairs: each prompt goes to both servers, one request at a time,
with both servers up where the host has room (else one after the other). Acceptance comes from the engine's own counters
over whole prompt sets, several requests in flight. Shallower depths follow from the acceptance by position.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagle3_backend.engines import measured as judged
from eagle3_backend.engines import prompt_sets
from eagle3_backend.engines.answers import Answer, Prompt
from eagle3_backend.engines.measured import Measured
from eagle3_backend.engines.overlap import overlap, seen
from eagle3_backend.findings import FindingError, error, info, warning
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.stages import bench_prompts, bench_report
from eagle3_backend.stages.bench_client import Client
from eagle3_backend.stages.bench_engines import BenchEngines
from eagle3_backend.stages.bench_report import Pair, StepCost
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafted_engine import drafted_engine
from eagle3_backend.stages.memory import room_for_two

SETS = {"in_domain": "holdout.jsonl", "published": "published.jsonl"}
"""Prompt sets of the report and their files in the prompts artifact."""

Sets = Mapping[str, Sequence[Prompt]]


@dataclass(frozen=True)
class _Asked:
    """The prompts of one bench: whole ``sets``, and those of them that also go to the server without the drafter."""

    sets: Sets
    speed: Sequence[Prompt]
    lossless: Sequence[Prompt]

    @property
    def plain_only(self) -> list[Prompt]:
        """Prompts of the lossless check whose plain answers do not come out of the speed pairs already."""
        return [prompt for prompt in self.lossless if prompt not in self.speed]

    @property
    def answers(self) -> int:
        return 2 * len(self.speed) + len(self.plain_only) + sum(map(len, self.sets.values()))


@dataclass(frozen=True)
class _Results:
    """``pairs`` for the speed, ``plain`` answers of the lossless check, and the prompt sets with the drafter."""

    pairs: Sequence[Pair]
    plain: Mapping[Prompt, Answer]
    measured: Sequence[Measured]
    interleaved: bool


def run(context: StageContext) -> None:
    """Measure, judge, and write bench.json and recipe.json. Raises FindingError, Stopped."""
    shutil.rmtree(context.output)
    context.output.mkdir()
    facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
    drafted = drafted_engine(context)
    asked = _choose(context)
    engines = BenchEngines(context, Path(facts["model"]), drafted, asked.answers)
    results = _measure(engines, asked)
    summary = {
        **_figures(context, results),
        "engine": {"name": context.spec["engine"]["engine"], "version": engines.version},
        "recipe": _recipe(context, facts, asked, results),
    }
    rows = [judged.answer_row(each.name, answer) for each in results.measured for answer in each.answers]
    for pair in results.pairs:
        rows += [judged.answer_row("speed", pair.drafted), judged.answer_row("speed_plain", pair.plain)]
    write_json(context.output / "bench.json", {**summary, "timings": engines.timings, "answers": rows})
    write_json(context.output / "recipe.json", summary["recipe"])
    context.finish(summary)


def _choose(context: StageContext) -> _Asked:
    """The prompts to ask; an empty set is reported. Raises FindingError when there is none at all."""
    parameters = context.parameters
    found = {
        name: prompt_sets.prompts_of(bench_prompts.read_rows(context.inputs["prompts"] / file))
        for name, file in SETS.items()
    }
    sets = {
        "in_domain": prompt_sets.sample(found["in_domain"], parameters.in_domain, parameters.seed),
        "published": prompt_sets.evenly(found["published"], parameters.published, parameters.seed),
    }
    if not any(sets.values()):
        raise FindingError(
            error(
                "prompt_set_empty",
                "There is no prompt to measure on.",
                path="bench",
                expected="hold-out or published prompts",
                actual=0,
                fix="Keep a hold-out (prompts.holdout) or name published prompt files (prompts.published).",
            )
        )
    for name, prompts in sets.items():
        if not prompts:
            context.report(
                warning(
                    "prompt_set_missing",
                    f"The set '{name}' has no prompts: its acceptance is not measured.",
                    path=f"bench.{name}",
                    expected="> 0 prompts",
                    actual=0,
                    fix="Name published prompt files (prompts.published), or keep a hold-out (prompts.holdout).",
                )
            )
    sets = {name: prompts for name, prompts in sets.items() if prompts}
    speed = prompt_sets.alternating(sets, parameters.speed_prompts)
    lossless = prompt_sets.alternating(sets, parameters.lossless_prompts)
    return _Asked(sets, speed, lossless)


def _measure(engines: BenchEngines, asked: _Asked) -> _Results:
    parameters, context = engines.parameters, engines.context
    together = room_for_two(context.spec["engine"], engines.model, parameters.dtype)
    with ExitStack() as drafted_life:
        with ExitStack() as plain_life:
            if together:
                plain_client, client = _start_both(engines, plain_life, drafted_life)
                with engines.timed("speed"):
                    plain, drafted = _interleave(engines, (plain_client, client), asked.speed)
            else:
                plain_client = plain_life.enter_context(engines.engine(drafting=False))
                plain = engines.ask(plain_client, asked.speed, 1)
            with engines.timed("lossless"):
                plain += engines.ask(plain_client, asked.plain_only, parameters.concurrency)
        if not together:
            client = drafted_life.enter_context(engines.engine(drafting=True))
            drafted = engines.ask(client, asked.speed, 1)
        measured = [engines.measure(client, name, prompts) for name, prompts in asked.sets.items()]
    plain_of = {answer.prompt: answer for answer in plain}
    return _Results(
        pairs=[Pair(answer, plain_of[answer.prompt]) for answer in drafted if answer.prompt in plain_of],
        plain={prompt: plain_of[prompt] for prompt in asked.lossless if prompt in plain_of},
        measured=measured,
        interleaved=together,
    )


def _start_both(engines: BenchEngines, plain_life: ExitStack, drafted_life: ExitStack) -> tuple[Client, Client]:
    """Both servers at once: most of a start is imports, which keep one core busy."""
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(plain_life.enter_context, engines.engine(drafting=False))
        drafted = pool.submit(drafted_life.enter_context, engines.engine(drafting=True))
        return plain.result(), drafted.result()


def _interleave(
    engines: BenchEngines, clients: tuple[Client, Client], prompts: Sequence[Prompt]
) -> tuple[list[Answer], list[Answer]]:
    """Each prompt on both servers, one request at a time; who goes first alternates, so that drift meets both alike."""
    answers: tuple[list[Answer], list[Answer]] = ([], [])
    for number, prompt in enumerate(prompts):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            answers[which].extend(engines.ask(clients[which], [prompt], 1))
    return answers


def _figures(context: StageContext, results: _Results) -> dict[str, Any]:
    """The figures of the summary. Findings go to the journal. Raises FindingError for a void measurement."""
    parameters = context.parameters
    for each in results.measured:
        for finding in judged.findings_of(each):
            context.refuse(finding)
    acceptance: dict[str, Any] = dict.fromkeys(SETS)
    for each in _with_overlap(context, results.measured):
        acceptance[each.name] = judged.acceptance(each, parameters.bootstrap, parameters.seed)
    figures = {"acceptance_length": acceptance, **_lossless(context, results)}
    if not results.pairs:
        unknown = dict.fromkeys(("recommended_depth", "recommended_for", "recommended_because", "speedup_c1"))
        return {**figures, **unknown, "by_depth": []}
    resampling = (parameters.bootstrap, parameters.seed)
    rows = bench_report.by_depth(results.measured, StepCost.of(results.pairs, parameters.depth))
    speed = bench_report.speed(results.pairs, *resampling)
    depth, reason = bench_report.recommend(rows, results.measured[0], speed, *resampling)
    return {
        **figures,
        "recommended_depth": depth,
        "recommended_for": results.measured[0].name,
        "recommended_because": reason,
        "speedup_c1": speed.to_json(),
        "by_depth": rows,
    }


def _with_overlap(context: StageContext, measured: Sequence[Measured]) -> list[Measured]:
    """The sets with what they share with the training text: in the prompts, and in the answers that were measured."""
    texts = {
        each.name: {
            "prompts": [answer.prompt.text for answer in each.answers],
            "answers": [answer.text for answer in each.answers],
        }
        for each in measured
    }
    training = bench_prompts.training_texts(
        context.inputs["prompts"] / "train.jsonl", context.inputs["conversations"] / "train.jsonl"
    )
    shared = seen([text for parts in texts.values() for part in parts.values() for text in part], training)
    return [
        replace(each, overlaps={part: overlap(found, shared) for part, found in texts[each.name].items()})
        for each in measured
    ]


def _lossless(context: StageContext, results: _Results) -> dict[str, int | None]:
    """Greedy texts with and without the drafter. Comparable in float32 only: elsewhere a target differs from itself
    between batch sizes."""
    if context.parameters.dtype != "float32":
        context.report(
            info(
                "lossless_not_compared",
                "Greedy texts are compared in float32 only: rounding depends on the batch in shorter dtypes.",
                path="bench.dtype",
                expected="float32",
                actual=context.parameters.dtype,
            )
        )
        return {"lossless_equal": None, "lossless_total": None}
    drafted: dict[Prompt, list[Answer]] = {prompt: [] for prompt in results.plain}
    answers = [answer for each in results.measured for answer in each.answers]
    for answer in answers + [pair.drafted for pair in results.pairs]:
        if answer.prompt in drafted:
            drafted[answer.prompt].append(answer)
    equal = bench_report.lossless(results.plain, drafted)
    if equal < len(results.plain):
        context.report(
            warning(
                "lossless_mismatch",
                f"{len(results.plain) - equal} greedy texts differ with the drafter: it changes what the target says.",
                path="bench.lossless_prompts",
                expected=len(results.plain),
                actual=equal,
                fix="Compare the rows in bench.json; look for a fault in the engine's rejection step.",
            )
        )
    return {"lossless_equal": equal, "lossless_total": len(results.plain)}


def _recipe(context: StageContext, facts: Mapping[str, Any], asked: _Asked, results: _Results) -> dict[str, Any]:
    """What must be equal before two benches may be compared."""
    parameters = context.parameters
    return {
        "target": facts["model"],
        "revision": facts["revision"],
        "engine": context.spec["engine"]["engine"],
        "layout": parameters.layout,
        "depth": parameters.depth,
        "temperature": 0.0,
        "max_new_tokens": parameters.max_new_tokens,
        "concurrency": parameters.concurrency,
        "context": parameters.context,
        "dtype": parameters.dtype,
        "kv_cache_dtype": "auto",
        "prefix_caching": False,
        "template_hash": facts["template_hash"],
        "prompt_set_hash": prompt_sets.set_hash(asked.sets),
        "turns": "first",
        "speed": "interleaved" if results.interleaved else "one after the other",
    }
