"""prompts: clean, deduplicate, keep a hold-out apart, and keep what is measured on out of what is trained on."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from eagle3_backend import prompt_sources
from eagle3_backend.engines.overlap import grams
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.pipeline.conversations import Conversation
from eagle3_backend.pipeline.parameters import PromptsParameters
from eagle3_backend.pipeline.prompt_names import is_named
from eagle3_backend.stages.context import StageContext

SHOWN_RECORDS = 5
"""Bad records that are reported one by one; the rest is counted."""


def run(context: StageContext) -> None:
    """Write train.jsonl, holdout.jsonl and published.jsonl. Raises FindingError when there is nothing to train on."""
    shutil.rmtree(context.output)
    context.output.mkdir()
    parameters: PromptsParameters = context.parameters
    counts: Counter[str] = Counter()
    pinned: list[str] = []
    read = _read_all("files", context, counts, pinned)
    published = _without_doubles(_read_all("published", context, Counter(), pinned), Counter())
    # Published prompts are taken evenly by file, whatever categories a file has of its own.
    published = [replace(row, source=row.file, answers=()) for row in published]
    kept = _clean(read, published, parameters.max_characters, counts)
    train, holdout = split(kept, parameters.holdout, parameters.seed)
    if parameters.limit:
        train = train[: parameters.limit]
    if not train:
        raise FindingError(_empty(parameters.files, counts))
    if not holdout:
        context.report(warning("holdout_empty", "No conversation is held out: nothing in-domain can be measured."))
    for name, rows in (("train", train), ("holdout", holdout), ("published", published)):
        _write(context.output / f"{name}.jsonl", rows)
    sets = {"train": len(train), "holdout": len(holdout), "published": len(published)}
    context.journal.progress(len(read), len(read), "prompts")
    turns = [turn for row in (*train, *holdout) for turn in row.turns]
    summary = {**sets, "turns": len(turns), "characters": sum(map(len, turns)), "dropped": dict(counts)}
    context.finish({**summary, **({"data_sets": pinned} if pinned else {})})


def _read_all(kind: str, context: StageContext, counts: Counter[str], pinned: list[str]) -> list[Conversation]:
    """Conversations of all files of a kind in their order, then those of sets that go by a name; ``pinned`` grows by
    the names of data sets with their commits. Records that are none are reported as warnings and counted."""
    found: list[Conversation] = []
    named = [name for name in getattr(context.parameters, kind) if is_named(name)]
    for source in (*context.inputs.get(kind, ()), *named):
        fetched = prompt_sources.read(source, context.leave_if_asked)
        if fetched.pinned:
            pinned.append(fetched.pinned)
            context.journal.note(f"{source} is {fetched.pinned}: {len(fetched.conversations)} conversations")
        for finding in fetched.bad[:SHOWN_RECORDS]:
            context.report(finding)
        if fetched.bad:
            counts["invalid"] += len(fetched.bad)
            name = source.name if isinstance(source, Path) else source
            context.journal.note(f"{name}: {len(fetched.bad)} records are no conversations")
        found += fetched.conversations
        context.journal.progress(len(found), None, "prompts")
        context.leave_if_asked()
    return found


def _without_doubles(conversations: Iterable[Conversation], counts: Counter[str]) -> list[Conversation]:
    """The first of each normal text."""
    found: dict[str, Conversation] = {}
    for conversation in conversations:
        if conversation.id in found:
            counts["duplicate"] += 1
        found.setdefault(conversation.id, conversation)
    return list(found.values())


def _clean(
    conversations: Iterable[Conversation],
    published: Sequence[Conversation],
    max_characters: int,
    counts: Counter[str],
) -> list[Conversation]:
    """Drop and count doubles, overlong prompts, and those that share text with a published prompt.

    A prompt that is measured on must not be trained on, nor one that says the same in thirteen words on end.
    """
    held: set[str] = set().union(*(grams(turn) for row in published for turn in row.turns))
    names = {row.id for row in published}
    kept = []
    for row in _without_doubles(conversations, counts):
        if max(map(len, row.turns)) > max_characters:
            counts["overlong"] += 1
        elif row.id in names or any(held & grams(turn) for turn in row.turns):
            counts["published"] += 1
        else:
            kept.append(row)
    return kept


def split(rows: Sequence[Conversation], holdout: int, seed: int) -> tuple[list[Conversation], list[Conversation]]:
    """Training and hold-out conversations, both in seeded order that does not depend on the files' order.

    Each file gives to the hold-out in proportion to its conversations (largest remainder), and one conversation at
    least stays for training.
    """
    order = sorted(rows, key=lambda row: row.id)
    random.Random(seed).shuffle(order)
    wanted = max(0, min(holdout, len(order) - 1))
    sizes = Counter(row.file for row in order)
    exact = {file: wanted * size / len(order) for file, size in sizes.items()}
    shares = {file: int(value) for file, value in exact.items()}
    for file in sorted(exact, key=lambda file: (shares[file] - exact[file], file))[: wanted - sum(shares.values())]:
        shares[file] += 1
    train: list[Conversation] = []
    held: list[Conversation] = []
    for row in order:
        taken = shares[row.file] > 0
        shares[row.file] -= taken
        (held if taken else train).append(row)
    return train, held


def _empty(files: Sequence[str], counts: Counter[str]) -> Finding:
    why = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()) if number) or "no records at all"
    return error(
        "prompts_empty",
        f"There is no prompt to train on: {why}.",
        path="stages.prompts.files",
        expected="at least one conversation",
        actual=list(files),
        fix="Name prompt files with conversations in [stages.prompts] files.",
    )


def _write(path: Path, rows: Iterable[Conversation]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row.to_json(), ensure_ascii=False) + "\n")
