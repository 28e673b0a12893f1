"""Which prompts are asked: the choice of them, seeded and even between sources, and its hash."""

from __future__ import annotations

import hashlib
import json
import random
from itertools import chain, zip_longest
from typing import Any, Dict, Iterable, List, Mapping, Sequence

from eagle3_backend.engines.answers import Prompt


def prompts_of(rows: Iterable[Mapping[str, Any]]) -> List[Prompt]:
    """The first user message of each row: later turns would need answers that are not there yet."""
    return [
        Prompt(str(row["id"]), str(row["source"]), row["turns"][0], row.get("system", ""))
        for row in rows
        if row["turns"]
    ]


def sample(prompts: Sequence[Prompt], count: int, seed: int) -> List[Prompt]:
    """``count`` prompts at most in seeded order: the kinds of prompts are mixed as they are in the whole."""
    return random.Random(seed).sample(prompts, min(count, len(prompts)))


def evenly(prompts: Sequence[Prompt], count: int, seed: int) -> List[Prompt]:
    """``count`` prompts at most, as many of each source as of any other while it lasts, in seeded order."""
    sources: Dict[str, List[Prompt]] = {}
    for prompt in prompts:
        sources.setdefault(prompt.source, []).append(prompt)
    draw = random.Random(seed)
    for name in sorted(sources):
        draw.shuffle(sources[name])
    rounds = zip_longest(*(sources[name] for name in sorted(sources)))
    return [prompt for prompt in chain.from_iterable(rounds) if prompt is not None][:count]


def alternating(sets: Mapping[str, Sequence[Prompt]], count: int) -> List[Prompt]:
    """``count`` prompts at most, taken from the sets in turn."""
    rounds = zip_longest(*sets.values())
    return [prompt for prompt in chain.from_iterable(rounds) if prompt is not None][:count]


def set_hash(sets: Mapping[str, Sequence[Prompt]]) -> str:
    """Hash of the prompts asked, in order: figures of different hashes are not figures of one test."""
    text = json.dumps({name: [prompt.messages for prompt in prompts] for name, prompts in sets.items()})
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
