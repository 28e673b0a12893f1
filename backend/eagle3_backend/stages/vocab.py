"""Chooses the drafter's vocabulary: the tokens that the target writes most."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from eagle3_backend.drafter.checks.vocabulary import map_findings
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import read_inventory
from eagle3_backend.findings import FindingError, Severity, error
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafter_directory import check_drafter

FILE = "vocab.safetensors"


def run(context: StageContext) -> None:
    """Write ``vocab.safetensors`` {d2t int64 [DV] offsets, t2d bool [V]} and the coverage it gives."""
    facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
    conversations = context.inputs["conversations"]
    counts = count_supervised(conversations / "train.jsonl")
    if not counts:
        message = "No token of the training conversations was written by the target: their loss masks are all zero."
        raise FindingError(error("loss_mask_all_zero", message, path="train.jsonl", fix="Run generate again."))
    size = min(context.parameters.draft_vocab_size, facts["vocab_size"])
    always = template_tokens(context.inputs["target"]) | set(_listed(facts.get("eos")))
    if context.parameters.adopt:
        kept = of_drafter(context.workspace / Path(context.parameters.adopt).expanduser(), facts["vocab_size"])
        size = len(kept)
    else:
        kept = choose(counts, size, facts["vocab_size"], always)
    stamp = _hash([sorted(counts.items()), size, facts["vocab_size"], facts.get("tokenizer_hash")])
    d2t, t2d = maps(kept, facts["vocab_size"])
    save_file({"d2t": d2t, "t2d": t2d}, context.output / FILE, metadata={"format": "pt", "hash": stamp})
    held_out = count_supervised(conversations / "holdout.jsonl")
    coverage = {"train": share(counts, kept), "holdout": share(held_out, kept)}
    context.journal.metric(0, **{f"vocab/coverage_{split}": value for split, value in coverage.items()})
    context.finish(
        {
            "draft_vocab_size": size,
            "distinct_tokens": len(counts),
            "supervised_tokens": sum(counts.values()),
            "coverage": coverage,
            "hash": stamp,
        }
    )


def count_supervised(path: Path) -> Counter[int]:
    """How often the target wrote each token in a conversations file."""
    counts: Counter[int] = Counter()
    for row in _rows(path):
        for start, end in row["loss_mask"]:
            counts.update(row["input_ids"][start:end])
    return counts


def choose(counts: Counter[int], size: int, vocab_size: int, always: set[int]) -> list[int]:
    """``size`` target ids, ascending: ``always`` first, then by count (ties: lower id), then the lowest unused ids.

    Filling up matters: a corpus may hold fewer distinct tokens than the draft vocabulary (sgl-project/SpecForge#76).
    """
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    wanted = dict.fromkeys([*sorted(always), *ranked, *range(vocab_size)])
    return sorted(list(wanted)[:size])


def of_drafter(directory: Path, vocab_size: int) -> list[int]:
    """The target ids, ascending, that a drafter drafts from; all where it brings no map. Raises FindingError."""
    check_drafter(directory, depth=1)
    inventory = read_inventory(LocalFolder(directory))
    offsets, kept = inventory.integers("d2t"), inventory.integers("t2d")
    if offsets is None:
        return list(range(vocab_size))
    refused = [each for each in map_findings(offsets, kept, vocab_size) if each.severity is Severity.ERROR]
    if refused:
        raise FindingError(*refused)
    return [token + offset for token, offset in enumerate(offsets)]


def maps(kept: list[int], vocab_size: int) -> tuple[Tensor, Tensor]:
    """d2t (target id minus draft id, int64) and t2d (bool) of ascending target ids."""
    ids = torch.tensor(kept)
    t2d = torch.zeros(vocab_size, dtype=torch.bool)
    t2d[ids] = True
    return ids - torch.arange(len(kept)), t2d


def share(counts: Counter[int], kept: list[int]) -> float:
    """Part of the counted tokens that the draft vocabulary can express."""
    total = sum(counts.values())
    return sum(counts[token] for token in kept) / total if total else 0.0


def template_tokens(target: Path) -> set[int]:
    """Ids of the tokenizer's added tokens that the chat template writes (turn, reasoning and tool markers)."""
    added: dict[str, int] = {}
    tokenizer = _json(target / "tokenizer.json")
    for entry in tokenizer.get("added_tokens", []):
        added[entry["content"]] = entry["id"]
    settings = _json(target / "tokenizer_config.json")
    for token, entry in settings.get("added_tokens_decoder", {}).items():
        added[entry["content"]] = int(token)
    template = str(settings.get("chat_template") or "")
    if (target / "chat_template.jinja").exists():
        template += (target / "chat_template.jinja").read_text(encoding="utf-8")
    return {token for content, token in added.items() if content in template}


def read_maps(directory: Path) -> tuple[Tensor, Tensor]:
    """d2t and t2d as the vocab artifact holds them."""
    tensors = load_file(directory / FILE)
    return tensors["d2t"], tensors["t2d"]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _listed(value: Any) -> list[int]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8")).hexdigest()
