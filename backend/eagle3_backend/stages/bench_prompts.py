"""Which prompts a bench asks, and how much of them training has seen."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from eagle3_backend.stages.bench_client import Prompt


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file, one at a time; nothing when there is no such file."""
    if path.exists():
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def prompts_of(rows: Iterable[Mapping[str, Any]]) -> list[Prompt]:
    """The first user message of each row: later turns would need answers that are not there yet."""
    return [
        Prompt(str(row["id"]), str(row["source"]), row["turns"][0], row.get("system", ""))
        for row in rows
        if row["turns"]
    ]


def sample(prompts: Sequence[Prompt], count: int, seed: int) -> list[Prompt]:
    """``count`` prompts at most in seeded order: the kinds of prompts are mixed as they are in the whole."""
    return random.Random(seed).sample(prompts, min(count, len(prompts)))


def evenly(prompts: Sequence[Prompt], count: int, seed: int) -> list[Prompt]:
    """``count`` prompts at most, as many of each source as of any other while it lasts, in seeded order."""
    sources: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        sources.setdefault(prompt.source, []).append(prompt)
    draw = random.Random(seed)
    for name in sorted(sources):
        draw.shuffle(sources[name])
    rounds = zip_longest(*(sources[name] for name in sorted(sources)))
    return [prompt for prompt in chain.from_iterable(rounds) if prompt is not None][:count]


def alternating(sets: Mapping[str, Sequence[Prompt]], count: int) -> list[Prompt]:
    """``count`` prompts at most, taken from the sets in turn."""
    rounds = zip_longest(*sets.values())
    return [prompt for prompt in chain.from_iterable(rounds) if prompt is not None][:count]


def training_texts(prompts: Path, conversations: Path) -> Iterator[str]:
    """Every text that training may have seen: user turns of the training prompts, all messages of the conversations."""
    for row in read_rows(prompts):
        yield from row["turns"]
    for row in read_rows(conversations):
        for message in row["messages"]:
            yield str(message.get("content") or "")


def set_hash(sets: Mapping[str, Sequence[Prompt]]) -> str:
    """Hash of the prompts asked, in order: figures of different hashes are not figures of one test."""
    text = json.dumps({name: [prompt.messages for prompt in prompts] for name, prompts in sets.items()})
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
