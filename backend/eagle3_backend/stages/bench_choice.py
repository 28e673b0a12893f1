"""Which prompts a bench asks, and what each of them is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eagle3_backend.engines import prompt_sets
from eagle3_backend.engines.answers import Prompt
from eagle3_backend.engines.cells import ROUNDS
from eagle3_backend.findings import FindingError, error, warning
from eagle3_backend.pipeline import long_context
from eagle3_backend.stages import bench_prompts
from eagle3_backend.stages.context import StageContext

SETS = {"in_domain": "holdout.jsonl", "published": "published.jsonl"}
"""Prompt sets of the report and their files in the prompts artifact."""

Sets = Mapping[str, Sequence[Prompt]]


@dataclass(frozen=True)
class Asked:
    """The prompts of one bench: whole ``sets``, those of them that are timed at each load, those whose text is compared
    with that of the server without a drafter, and those that are asked again as raw text. Long documents are in none
    but the first: a round of one would be the time of its prompt."""

    sets: Sets
    loads: Mapping[int, Sequence[Prompt]]
    lossless: Sequence[Prompt]
    raw: Sequence[Prompt]

    @property
    def plain_only(self) -> list[Prompt]:
        """Prompts of the lossless check whose plain answers do not come out of the speed pairs already."""
        return [prompt for prompt in self.lossless if prompt not in self.loads.get(1, ())]

    @property
    def parts(self) -> dict[str, Sequence[Prompt]]:
        """All prompts by what they are asked for."""
        loads = {f"{concurrency} in flight": prompts for concurrency, prompts in self.loads.items()}
        return {**self.sets, **loads, "lossless": self.lossless, "raw": self.raw}

    def answers(self, ways: int, *, together: bool) -> int:
        """How many answers a bench of so many ways to draft waits for."""
        timed = sum(map(len, self.loads.values())) * (2 * ways if together else ways + 1)
        return timed + len(self.plain_only) + sum(map(len, self.sets.values())) + len(self.raw)


def choose(context: StageContext) -> Asked:
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
    long = prompt_sets.prompts_of(long_context.rows()) if parameters.long_context else []
    documents = prompt_sets.evenly(long, parameters.long_context, parameters.seed)
    return Asked(
        {**sets, **({long_context.NAME: documents} if documents else {})},
        _loads(context, sets),
        prompt_sets.alternating(sets, parameters.lossless_prompts),
        prompt_sets.alternating(sets, parameters.raw_prompts),
    )


def _loads(context: StageContext, sets: Sets) -> dict[int, Sequence[Prompt]]:
    """The prompts that are timed at each number of requests in flight; one that the prompts cannot fill is reported."""
    parameters = context.parameters
    if not parameters.speed_prompts:
        return {}
    loads: dict[int, Sequence[Prompt]] = {}
    for concurrency in (1, *sorted(set(parameters.concurrencies) - {1})):
        wanted = parameters.speed_prompts if concurrency == 1 else max(parameters.speed_prompts, ROUNDS * concurrency)
        loads[concurrency] = prompt_sets.alternating(sets, wanted)
        if len(loads[concurrency]) < concurrency:
            context.report(
                warning(
                    "concurrency_not_reached",
                    f"There are too few prompts to keep {concurrency} requests in flight.",
                    path="bench.concurrencies",
                    expected=concurrency,
                    actual=len(loads[concurrency]),
                    fix="Measure more prompts (bench.in_domain, bench.published), or fewer requests in flight.",
                )
            )
    return loads
