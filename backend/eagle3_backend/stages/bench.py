"""bench: the target with and without its drafter, on prompts that training never saw.

Two engine starts, and one more for each further depth and each other way to draft. Speed is measured in pairs: each
prompt goes to both servers, with both up where the host has room (else one after the other), one request at a time and
at every other load that is asked for. Acceptance comes from the engine's own counters over whole prompt sets, several
requests in flight. Depths that are not measured follow from the acceptance by position. What is measured is kept part
by part (`bench_kept`), so an attempt that is cut off is gone on with by the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagle3_backend.engines import measured as judged
from eagle3_backend.engines.answers import Answer, Prompt
from eagle3_backend.engines.cells import Cell, Pair, need, recommended, rows_of
from eagle3_backend.engines.measured import Measured
from eagle3_backend.engines.overlap import overlap, seen
from eagle3_backend.engines.raw_text import did_not_fail, raw_text_control
from eagle3_backend.findings import Finding, FindingError, info, warning
from eagle3_backend.pipeline import long_context
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.stages import bench_prompts, bench_report
from eagle3_backend.stages.bench_choice import SETS, Asked, choose
from eagle3_backend.stages.bench_client import Client
from eagle3_backend.stages.bench_engines import BenchEngines, Server
from eagle3_backend.stages.bench_kept import AnotherBuild, Kept, recipe_of
from eagle3_backend.stages.bench_recipe import recipe
from eagle3_backend.stages.bench_report import StepCost
from eagle3_backend.stages.bench_resume import over_starts, take_up, tell_begun_anew, tell_kept
from eagle3_backend.stages.bench_sweep import Launch, Sweep, launches
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.stages.memory import room_for_two


@dataclass(frozen=True)
class _Results:
    """The ``cells`` of the table of speeds, the first of them ours one request at a time; ``plain`` answers of the
    lossless check, the prompt sets with the drafter, and the answers to ``raw`` text."""

    cells: Sequence[Cell]
    lost: Sequence[Mapping[str, Any]]
    plain: Mapping[Prompt, Answer]
    measured: Sequence[Measured]
    raw: Sequence[Answer]
    interleaved: bool

    @property
    def pairs(self) -> Sequence[Pair]:
        """Ours beside the target alone, one request at a time."""
        return self.cells[0].pairs if self.cells else ()


def run(context: StageContext) -> None:
    """Measure, judge, and write bench.json and recipe.json. Raises FindingError, Stopped."""
    facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
    ways = launches(context)
    asked = choose(context)
    model = Path(facts["model"])
    together = room_for_two(context.spec["engine"], model, context.parameters.dtype)
    plans = {"none": context.spec["engine"], **{launch.way.words: launch.plan for launch in ways}}
    others = [Path(launch.way.directory) for launch in ways if launch.way.directory]
    same = recipe_of(context.spec, context.parameters, plans, [model, context.inputs["drafter"], *others], asked.parts)
    kept = take_up(context, {**same, "target": facts, "interleaved": together})
    try:
        engines, results, taken = _measured(context, kept, asked, ways, model, together=together)
        _finish(context, facts, asked, engines, results, over_starts(kept, taken), together=together)
    finally:
        kept.close()


def _measured(
    context: StageContext, kept: Kept, asked: Asked, ways: Sequence[Launch], model: Path, *, together: bool
) -> tuple[BenchEngines, _Results, int]:
    """What was measured now or before, and how many answers of it were there when this attempt began."""
    taken = kept.answers
    engines = BenchEngines(context, model, asked.answers(len(ways), together=together), kept)
    try:
        return engines, _measure(engines, asked, ways, together=together), taken
    except AnotherBuild:
        tell_begun_anew(context, kept)
        return _measured(context, kept, asked, ways, model, together=together)
    except (Stopped, FindingError):
        tell_kept(context, engines, taken)
        raise


def _finish(
    context: StageContext,
    facts: Mapping[str, Any],
    asked: Asked,
    engines: BenchEngines,
    results: _Results,
    measured_over: Mapping[str, Any],
    *,
    together: bool,
) -> None:
    try:
        figures = _figures(context, results)
    except FindingError:
        engines.kept.void()
        raise
    summary = {
        **figures,
        "measured_over": measured_over,
        "engine": {"name": context.spec["engine"]["engine"], "version": engines.version},
        "recipe": recipe(context, facts, asked.sets, engines.version, interleaved=together),
    }
    rows = [judged.answer_row(each.name, answer) for each in results.measured for answer in each.answers]
    for pair in results.pairs:
        rows += [judged.answer_row("speed", pair.drafted), judged.answer_row("speed_plain", pair.plain)]
    rows += [judged.answer_row("raw_text", answer) for answer in results.raw]
    timed = [row for cell in results.cells for row in bench_report.timed_rows(cell)]
    write_json(context.output / "bench.json", {**summary, "timings": engines.timings, "answers": rows, "timed": timed})
    write_json(context.output / "recipe.json", summary["recipe"])
    engines.kept.close()
    context.finish(summary)


def _measure(engines: BenchEngines, asked: Asked, ways: Sequence[Launch], *, together: bool) -> _Results:
    concurrency = engines.parameters.concurrency
    first, *others = ways
    sweep = Sweep(engines, asked.loads)
    with ExitStack() as plain_life:
        plain = Server(engines, None, plain_life)
        with ExitStack() as drafted_life:
            drafted = Server(engines, first, drafted_life)
            if together:
                if not sweep.is_whole(first.way):
                    _start_both(plain, drafted)
                with engines.timed("speed"):
                    sweep.beside(first.way, plain, drafted)
            else:
                with engines.timed("speed_plain"):
                    sweep.alone(plain, [launch.way for launch in ways])
            with engines.timed("lossless"):
                plain_answers = engines.ask(plain, Client.chat, asked.plain_only, concurrency, part="lossless")
            if not (together and others):
                plain_life.close()
            if not together:
                with engines.timed("speed"):
                    sweep.beside(first.way, None, drafted)
            measured = [engines.measure(drafted, name, prompts) for name, prompts in asked.sets.items()]
            with engines.timed("raw_text"):
                # Raw text soon ends in a loop, so half the tokens tell as much.
                tokens = engines.parameters.max_new_tokens // 2 or 1
                raw = engines.ask(drafted, Client.raw, asked.raw, concurrency, part="raw", tokens=tokens)
        sweep.others(others, plain if together else None)
    alone = {
        answer.prompt: answer for cell in sweep.cells[:1] for timed in cell.plain for answer in timed.round.answers
    }
    plain_of = {**{answer.prompt: answer for answer in plain_answers}, **alone}
    return _Results(
        cells=sweep.cells,
        lost=sweep.lost,
        plain={prompt: plain_of[prompt] for prompt in asked.lossless if prompt in plain_of},
        measured=measured,
        raw=raw,
        interleaved=together,
    )


def _start_both(plain: Server, drafted: Server) -> None:
    """Both servers at once: most of a start is imports, which keep one core busy."""
    with ThreadPoolExecutor(2) as pool:
        for started in [pool.submit(server.up) for server in (plain, drafted)]:
            started.result()


def _figures(context: StageContext, results: _Results) -> dict[str, Any]:
    """The figures of the summary. Findings go to the journal. Raises FindingError for a void measurement."""
    parameters = context.parameters
    # A set without any answer was refused as a whole, which is told already.
    sets = [each for each in results.measured if each.answers] or results.measured
    for each in sets:
        for finding in judged.findings_of(each):
            context.refuse(finding)
    left_out = sum(len(cell.drafted) - len(cell.kept) for cell in results.cells)
    if left_out:
        context.report(_other_traffic(left_out, sum(len(cell.drafted) for cell in results.cells)))
    acceptance: dict[str, Any] = dict.fromkeys([*SETS, *(each.name for each in results.measured)])
    for each in _with_overlap(context, sets):
        acceptance[each.name] = judged.acceptance(each, parameters.bootstrap, parameters.seed)
    resampling = (parameters.bootstrap, parameters.seed)
    cells = rows_of(results.cells, *resampling)
    figures = {
        "acceptance_length": acceptance,
        **_lossless(context, results),
        "controls": _controls(context, results),
        "cells": cells,
        "recommended_by_concurrency": recommended(cells),
        "drafter_needed": need(results.cells, *resampling),
        "ways_lost": list(results.lost),
    }
    if not results.pairs:
        unknown = dict.fromkeys(("recommended_depth", "recommended_for", "recommended_because", "speedup_c1"))
        return {**figures, **unknown, "by_depth": []}
    rows = bench_report.by_depth(sets, StepCost.of(results.pairs, parameters.depth), untimed=(long_context.NAME,))
    speed = bench_report.speed(results.pairs, *resampling)
    depth, reason = bench_report.recommend(rows, sets[0], speed, *resampling)
    return {
        **figures,
        "recommended_depth": depth,
        "recommended_for": sets[0].name,
        "recommended_because": reason,
        "speedup_c1": speed.to_json(),
        "by_depth": rows,
    }


def _controls(context: StageContext, results: _Results) -> dict[str, Any]:
    """What has to look wrong if the figures are right. Wrong layers and a shuffled map are `diagnose`'s, by replay."""
    chats = [answer for each in results.measured for answer in each.answers]
    found = raw_text_control(chats, results.raw, context.parameters.bootstrap, context.parameters.seed)
    if found is None:
        return {}
    if found["failed_as_it_must"] is False:
        context.report(did_not_fail(found))
    return {"raw_text": found}


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


def _other_traffic(left_out: int, rounds: int) -> Finding:
    return warning(
        "bench_other_traffic",
        f"In {left_out} of {rounds} rounds an engine worked for somebody else too, or was restarted: they are left out "
        "of the speeds.",
        path="bench.concurrencies",
        expected=0,
        actual=left_out,
        fix="Measure again with nothing else talking to these engines.",
    )
