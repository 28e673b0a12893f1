"""Judging a server that this product did not start: no profile, no host, no pipeline; a URL and prompt files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from eagle3_backend.agent import hub
from eagle3_backend.drafter import checks
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.engines.answers import Answer, Prompt, Refusal, ask_all
from eagle3_backend.engines.metrics import verify_steps
from eagle3_backend.engines.prompt_sets import evenly, set_hash
from eagle3_backend.engines.rounds import Round, Rounds, no_drafts, read_round, replay_finding
from eagle3_backend.findings import Finding, FindingError, Severity, error, warning
from eagle3_backend.pipeline import hub_sets, long_context
from eagle3_backend.pipeline.conversations import Conversation, read_file, read_records
from eagle3_backend.serving.chat import Chat
from eagle3_backend.serving.running_server import Identity, RunningServer

__all__ = ["Chat", "Drafter", "RunningServer", "Wanted", "bench", "check", "read_prompts"]

SEED, RESAMPLES = 17, 2000
PATIENCE, RETRY = 90.0, 1.0
"""How long a bench waits for a server whose link was cut, and between two tries, seconds."""


@dataclass(frozen=True)
class Drafter:
    """What lies in a drafter's directory, and the target's config where it is known."""

    config: Mapping[str, Any]
    inventory: Inventory | None = None
    target: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Wanted:
    """How a server is to be measured: prompts at most, tokens of an answer, requests in flight (of one round), and the
    data sets of a hub that the prompts are from, each with its commit."""

    prompts: int = 40
    max_new_tokens: int = 64
    concurrency: int = 8
    data_sets: tuple[str, ...] = ()


def read_prompts(names: Sequence[str], wanted: Wanted) -> tuple[list[Prompt], Wanted, list[Finding]]:
    """As many prompts as are wanted, evenly from the sets (paths, or names as in `pipeline.prompt_names`); ``wanted``
    with the data sets that they are from; and what is wrong with records. Raises FindingError."""
    prompts: list[Prompt] = []
    found: list[Finding] = []
    pinned: list[str] = []
    for name in names:
        conversations: Sequence[Conversation]
        bad: Sequence[Finding]
        if name == long_context.NAME:
            conversations, bad = read_records([(row["id"], row) for row in long_context.rows()], name)
        elif hub_sets.is_hub(name):
            fetched = hub.fetch(name)
            conversations, bad = fetched.conversations, fetched.bad
            pinned.append(fetched.pinned)
        else:
            conversations, bad = read_file(Path(name))
        prompts += [Prompt(each.id, each.file, each.turns[0], each.system) for each in conversations]
        found += bad
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Acceptance of the server as it runs, on these prompts.

    Answer: {"endpoint", "server", "acceptance" or None, "tokens_per_second", "recipe", "findings"}. Raises
    FindingError.
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[dict[str, Any], Rounds]:
    """`bench`, and the rounds that it rests on."""
    findings = _of_drafter(server.identity, drafter)
    rounds: list[Round] = []
    begin, generated, repeated = time.monotonic(), 0, 0
    for start in range(0, len(prompts), wanted.concurrency):
        some = prompts[start : start + wanted.concurrency]
        one, refusals, cuts = _ask_round(server, some, wanted)
        repeated += bool(cuts)
        if one is None:
            findings.append(_lost(server, start, len(prompts)))
            break
        findings += refusals
        rounds.append(one)
        generated += sum(answer.generated for answer in one.answers)
        progress(start + len(some), len(prompts))
    if repeated:
        findings.append(_cut(repeated))
    measured = Rounds(rounds, server.identity.depth)
    if measured.answers:
        identity = server.identity
        findings += [*measured.findings(), replay_finding(measured.answers, identity.engine, identity.dtype)]
    figures = measured.figures(RESAMPLES, SEED)
    recipe = {
        "temperature": 0.0,
        "max_new_tokens": wanted.max_new_tokens,
        "concurrency": wanted.concurrency,
        "prompts": len(measured.answers),
        "prompt_set_hash": set_hash({"published": prompts}),
        "turns": "first",
        **({"data_sets": list(wanted.data_sets)} if wanted.data_sets else {}),
    }
    speed = round(generated / (time.monotonic() - begin), 1)
    return _answer(server, findings, acceptance=figures, tokens_per_second=speed, recipe=recipe), measured


def _ask_round(
    server: RunningServer, prompts: Sequence[Prompt], wanted: Wanted
) -> tuple[Round | None, list[Finding], int]:
    """These prompts at once, asked again as a whole after a cut: the counters are then those of the new try.

    None when the server does not come back; what was refused; and how often the link was cut. Raises FindingError.
    """
    end, cuts = time.monotonic() + PATIENCE, 0
    ask = partial(server.chat, max_new_tokens=wanted.max_new_tokens)
    while True:
        try:
            before = server.scrape()
            found = {answer.prompt: answer for answer in ask_all(ask, prompts, len(prompts))}
            after = server.scrape()
        except FindingError as problem:
            if problem.findings[0].code != "endpoint_unreachable":
                raise
            cuts += 1
            if time.monotonic() > end:
                return None, [], cuts
            time.sleep(RETRY)
            continue
        # In the order of the prompts, whoever came first: the interval is then the same each time.
        answers = [answer for answer in map(found.get, prompts) if isinstance(answer, Answer)]
        refused = [_refused(answer) for answer in found.values() if isinstance(answer, Refusal)]
        return read_round(before, after, answers), refused, cuts


def _lost(server: RunningServer, done: int, wanted: int) -> Finding:
    return error(
        "endpoint_lost",
        f"{server.url} was lost and did not come back within {PATIENCE:.0f} s: the figures are those of {done} of "
        f"{wanted} prompts.",
        path="endpoint",
        expected=wanted,
        actual=done,
        fix="Look whether the server is still there, and measure again.",
    )


def _cut(rounds: int) -> Finding:
    return warning(
        "endpoint_link_cut",
        f"The way to the server was cut in {rounds} rounds, which were asked again as a whole; nothing is missing. "
        "The speed counts the waiting.",
        path="endpoint",
        expected=0,
        actual=rounds,
    )


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


def _refused(refusal: Refusal) -> Finding:
    return warning(
        "prompt_refused",
        f"The server refused a prompt, which is left out: {refusal.reason[:400]}",
        path=f"{refusal.prompt.source}:{refusal.prompt.id}",
        fix="Leave out prompts that are longer than its context.",
    )
