"""Acceptance of drafters on answers that are there already, in plain torch; and what the real vLLM does with them.

Greedy drafting is determined by the tokens, so a drafter's verify steps over the target's answer follow from one pass
of both over it. A step that the end of an answer cuts short is left out: its length says nothing about the drafter.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from measuring import PATHS, ROOT
from torch import Tensor

from eagle3_backend.stages.reference_drafter import ReferenceDrafter
from eagle3_backend.stages.replay import Request, TargetStates, replay, summary_of

LAB = ROOT / "tests" / "support" / "engine_lab.py"


class Reader:
    """The target's states over each text; a text is read once for all drafters."""

    def __init__(self, model: Path, layers: Sequence[int]) -> None:
        self._states = TargetStates(model, layers)
        self._known: dict[tuple[int, ...], dict[int, Tensor]] = {}
        self.embedding = self._states.embedding

    def __call__(self, request: Request) -> dict[int, Tensor]:
        text = (*request.prompt_tokens, *request.tokens)
        if text not in self._known:
            self._known[text] = self._states(text)
        return self._known[text]


def drafted(
    reference: ReferenceDrafter, reader: Reader, requests: Sequence[Request], depth: int
) -> list[tuple[int, int]]:
    """Verify steps and accepted drafts of each answer, from its first token on."""
    model = reference.model(reader.embedding)
    found = []
    for request in requests:
        # An engine that accepts nothing stands at every token once: so each row's drafts are judged.
        everywhere = replace(request, accepted=(0,) * len(request.tokens))
        lengths = replay(model, reference.target_ids, reader(request), everywhere, depth).predicted
        found.append(way(lengths, depth))
    return found


def way(lengths: Sequence[int], depth: int) -> tuple[int, int]:
    """Verify steps and accepted drafts of a server that begins at the first of these rows; ``lengths`` is how many
    drafts of each row are right, up to the last that has a token after it."""
    row = steps = accepted = 0
    while row < len(lengths):
        left = len(lengths) - row
        taken = min(lengths[row], left)
        if taken == left < depth:
            break
        steps, accepted, row = steps + 1, accepted + taken, row + taken + 1
    return steps, accepted


def served(
    python: str, model: Path, drafters: Sequence[Path], requests: Sequence[Request], depth: int
) -> dict[str, list[Request]]:
    """What the real vLLM (float32, greedy) answers to these prompts with each drafter, by directory."""
    wanted = {
        "target": str(model),
        "depth": depth,
        "new_tokens": max(len(request.tokens) for request in requests),
        "prompts": [list(request.prompt_tokens) for request in requests],
        "drafters": [str(drafter) for drafter in drafters],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "request.json"
        path.write_text(json.dumps(wanted), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": PATHS}
        done = subprocess.run([python, str(LAB), str(path)], env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, list[Request]] = {}
    for line in filter(lambda text: text.startswith(b"{"), done.stdout.splitlines()):
        entry = json.loads(line)
        assert "answers" in entry, entry["refused"]
        found[entry["drafter"]] = [
            Request(asked.id, row["prompt_tokens"], row["tokens"], row["accepted"])
            for asked, row in zip(requests, entry["answers"], strict=True)
        ]
    return found


def agreement(reference: ReferenceDrafter, reader: Reader, requests: Sequence[Request], depth: int) -> dict[str, Any]:
    """How many verify steps of an engine plain torch predicts, with both acceptance lengths."""
    model = reference.model(reader.embedding)
    steps = [request for request in requests if len(request.accepted) > 1]
    summary = summary_of([replay(model, reference.target_ids, reader(each), each, depth) for each in steps], depth)
    lengths = {name: summary[name]["acceptance_length"] for name in ("observed", "predicted")}
    return {"steps": summary["steps"], "equal": summary["equal"], **lengths}
