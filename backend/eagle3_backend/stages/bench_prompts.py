"""The rows that a bench reads: prompts, and the text that training has seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file, one at a time; nothing when there is no such file."""
    if path.exists():
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def training_texts(prompts: Path, conversations: Path) -> Iterator[str]:
    """Every text that training may have seen: user turns of the training prompts, all messages of the conversations."""
    for row in read_rows(prompts):
        yield from row["turns"]
    for row in read_rows(conversations):
        for message in row["messages"]:
            yield str(message.get("content") or "")
