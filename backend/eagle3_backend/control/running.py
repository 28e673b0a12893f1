"""Judging a server that this product did not start: no profile, no host, no pipeline; a URL and prompt files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from eagle3_backend import prompt_sources
from eagle3_backend.control.loads import Progress, Sweep, Wanted, in_silence
from eagle3_backend.drafter import checks
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.engines.answers import Prompt, Refusal
from eagle3_backend.engines.metrics import verify_steps
from eagle3_backend.engines.prompt_sets import evenly, set_hash
from eagle3_backend.engines.rounds import Rounds, no_drafts, replay_finding
from eagle3_backend.findings import Finding, FindingError, Severity, error, warning
from eagle3_backend.pipeline import long_context
from eagle3_backend.serving.chat import Chat
from eagle3_backend.serving.running_server import Identity, RunningServer

__all__ = ["Chat", "Drafter", "RunningServer", "Wanted", "bench", "check", "measure", "read_prompts", "record_of"]

SEED, RESAMPLES = 17, 2000


@dataclass(frozen=True)
class Drafter:
    """What lies in a drafter's directory, and the target's config where it is known."""

    config: Mapping[str, Any]
    inventory: Inventory | None = None
    target: Mapping[str, Any] | None = None


def read_prompts(names: Sequence[str], wanted: Wanted) -> tuple[list[Prompt], Wanted, list[Finding]]:
    """As many prompts as are wanted, evenly from the sets (paths, or names as in `pipeline.prompt_names`); ``wanted``
    with the data sets that they are from; and what is wrong with records. Raises FindingError."""
    prompts: list[Prompt] = []
    found: list[Finding] = []
    pinned: list[str] = []
    # Long documents that are asked for alone are of one set: they are taken evenly, and told, by their length.
    by_length = list(names) == [long_context.NAME]
    for name in names:
        fetched = prompt_sources.read(name)
        pinned += [fetched.pinned] if fetched.pinned else []
        prompts += [
            Prompt(each.id, each.source if by_length else each.file, each.turns[0], each.system)
            for each in fetched.conversations
        ]
        found += fetched.bad
    chosen = evenly(prompts, wanted.prompts, SEED)
    if not chosen:
        raise FindingError(
            *found,
            error(
                "prompt_set_empty",
                "There is no prompt to measure on.",
                path="prompts",
                expected="> 0 prompts",
                actual=0,
                fix="Name prompt files, shipped sets or data sets with --prompts.",
            ),
        )
    return chosen, replace(wanted, data_sets=tuple(pinned)), found


def check(server: RunningServer, drafter: Drafter | None) -> dict[str, Any]:
    """Who the server is, whether it drafts at all (one short completion), and what its release does with the drafter.

    Answer: {"endpoint", "server", "drafts", "findings"}. Raises FindingError.
    """
    before = server.scrape()
    answer = server.chat(Prompt("check", "check", "Count from one to twenty."), 16)
    if isinstance(answer, Refusal):
        raise FindingError(error("endpoint_refused", f"A short prompt was refused: {answer.reason}", path="endpoint"))
    steps = answer.steps.count or verify_steps(server.scrape()) - verify_steps(before)
    findings = _of_drafter(server.identity, drafter)
    if not steps:
        findings.append(no_drafts())
    return _answer(server, findings, drafts=bool(steps))


def bench(
    server: RunningServer,
    prompts: Sequence[Prompt],
    wanted: Wanted,
    drafter: Drafter | None = None,
    progress: Progress = in_silence,
) -> dict[str, Any]:
    """Acceptance, speed and waiting times of the server as it runs, on these prompts, at each of the wanted loads.

    Answer: {"endpoint", "server", "acceptance" or None, "tokens_per_second" or None, "findings"}, both figures of the
    first load, and as the summary of a bench has them: "engine", "cells", a row for each load, "acceptance_length",
    "ways_lost", "recipe". Raises FindingError.
    """
    return measure(server, prompts, wanted, drafter, progress)[0]


def record_of(server: RunningServer, measured: Rounds) -> dict[str, Any]:
    """What a replay needs of a measurement: see `commands.Diagnose`. Raises FindingError with what is missing."""
    identity = server.identity
    rows = [
        {
            "id": f"{answer.prompt.source}:{answer.prompt.id}",
            "prompt_tokens": list(answer.prompt_tokens),
            "tokens": list(answer.tokens),
            "accepted": list(answer.steps.in_order),
        }
        for answer in measured.answers
        if len(answer.steps.in_order) > 1 and answer.prompt_tokens and answer.tokens
    ]
    if not rows:
        missing = replay_finding(measured.answers, identity.engine, identity.dtype)
        raise FindingError(replace(missing, code="replay_not_possible", severity=Severity.ERROR))
    return {"depth": measured.depth, "dtype": identity.dtype, "requests": rows}


def measure(
    server: RunningServer,
    prompts: Sequence[Prompt],
    wanted: Wanted,
    drafter: Drafter | None = None,
    progress: Progress = in_silence,
) -> tuple[dict[str, Any], Rounds]:
    """`bench`, and the rounds that it rests on."""
    findings, identity = _of_drafter(server.identity, drafter), server.identity
    sweep = Sweep(server, prompts, wanted, progress)
    sweep.run()
    findings += sweep.findings
    measured = Rounds([timed.round for load in sweep.loads for timed in load.rounds], identity.depth)
    if measured.answers:
        findings += [*measured.findings(), replay_finding(measured.answers, identity.engine, identity.dtype)]
    cut = sum(one.is_cut(wanted.max_new_tokens) for one in measured.answers)
    if cut:
        findings.append(_cut_short(cut, len(measured.answers), wanted, identity))
    cells = [load.row(measured.depth, identity.drafter or "", RESAMPLES, SEED) for load in sweep.loads]
    acceptance = cells[0]["acceptance_length"] if cells else None
    figures = {
        "acceptance": acceptance,
        "tokens_per_second": cells[0]["tokens_per_second"] if cells else None,
        "engine": {"name": identity.engine, "version": identity.version},
        "cells": cells,
        "acceptance_length": {_name_of(prompts): acceptance} if acceptance else {},
        "ways_lost": sweep.lost,
        "recipe": _recipe(identity, prompts, wanted, measured, streamed=sweep.streamed),
    }
    return _answer(server, findings, **figures), measured


def _name_of(prompts: Sequence[Prompt]) -> str:
    """The set of a campaign's bench that these prompts stand beside."""
    is_long = {prompt.source for prompt in prompts} <= {*long_context.SOURCES}
    return long_context.NAME if is_long else "published"


def _cut_short(cut: int, answers: int, wanted: Wanted, identity: Identity) -> Finding:
    return warning(
        "prompt_beyond_context",
        f"{cut} of {answers} answers ended at the end of the server's context, before their {wanted.max_new_tokens} "
        "tokens: they are in the figures.",
        path="endpoint",
        expected=f"prompt and answer within {identity.context or 'its'} tokens",
        actual=cut,
        fix="Leave out the longest prompts, or ask for shorter answers (--max-new-tokens).",
    )


def _recipe(
    identity: Identity, prompts: Sequence[Prompt], wanted: Wanted, measured: Rounds, *, streamed: bool
) -> dict[str, Any]:
    """What has to be equal before two benches may be compared, by the names of a bench's recipe; what the server does
    not tell is not in it."""
    found = {
        "engine": identity.engine,
        "engine_version": identity.version,
        "model": identity.model,
        "drafter": identity.drafter,
        "depth": measured.depth or None,
        "context": identity.context,
        "dtype": identity.dtype,
    }
    return {
        **{name: value for name, value in found.items() if value is not None},
        "temperature": 0.0,
        "max_new_tokens": wanted.max_new_tokens,
        "concurrency": wanted.concurrencies[0],
        "concurrencies": list(wanted.concurrencies),
        "prompts": len({answer.prompt for answer in measured.answers}),
        "prompt_set_hash": set_hash({"published": prompts}),
        "turns": "first",
        **({"data_sets": list(wanted.data_sets)} if wanted.data_sets else {}),
        "cache_salt": True,
        "timed_answers": "streamed" if streamed else "whole",
    }


def _answer(server: RunningServer, findings: Sequence[Finding], **values: Any) -> dict[str, Any]:
    told = [finding.to_json() for finding in findings]
    return {"endpoint": server.url, "server": asdict(server.identity), **values, "findings": told}


def _of_drafter(identity: Identity, drafter: Drafter | None) -> list[Finding]:
    """What this release does with the drafter, and whether the server drafts by the method that a drafter needs."""
    if drafter is None:
        return []
    found: list[Finding] = []
    if identity.method not in (None, "eagle3"):
        found.append(
            error(
                "spec_algorithm_mismatch",
                f"The server drafts with {str(identity.method).upper()}, which is not for an EAGLE-3 drafter.",
                path="endpoint",
                expected="eagle3",
                actual=identity.method,
                fix="Start it with --speculative-algorithm EAGLE3; other kinds of drafters are measured without DIR.",
            )
        )
    try:
        found += checks.check(
            drafter.config,
            identity.engine,
            version=identity.version.partition("+")[0],
            target=drafter.target,
            inventory=drafter.inventory,
            context=identity.context,
        )
    except ValueError:
        found.append(
            warning(
                "engine_version_unread",
                f"The version '{identity.version}' could not be read: the drafter was not judged against it.",
                path="endpoint",
                actual=identity.version,
            )
        )
    return found
