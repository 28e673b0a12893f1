"""What a finished campaign gives to a benchmark: its artifacts, and a store of its first conversations."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.stages.replay import Request
from eagle3_backend.stages.store import Row, StoreWriter, open_store

VARIABLE = "EAGLE3_BENCH_CAMPAIGN"
SHARD_BYTES = 1 << 30


@dataclass(frozen=True)
class Campaign:
    """Artifacts that one bench stands on, and the target's greedy answers to published prompts in it.

    ``engine`` is the interpreter of the campaign's vLLM, where it is there still.
    """

    target: Path
    store: Path
    vocab: Path
    answers: list[Request]
    engine: str | None

    @property
    def model(self) -> Path:
        return Path(json.loads((self.target / "facts.json").read_text(encoding="utf-8"))["model"])


def campaign(prompts: int) -> Campaign:
    """The campaign that the environment names: WORKSPACE/CAMPAIGN, with a bench over ``prompts`` published prompts.

    Greedy answers of float32 are asked for: in bfloat16 rounding decides between near words. Ends the program where
    there is none.
    """
    folder = Path(os.environ.get(VARIABLE, ""))
    for bench in sorted(folder.glob("bench/*/bench.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        found = json.loads(bench.read_text(encoding="utf-8"))
        exact = found["recipe"]["dtype"] == "float32" and found["recipe"]["temperature"] == 0.0
        answers = [_request(row) for row in found["answers"] if row["set"] == "published"]
        if exact and len(answers) >= prompts:
            return _campaign(folder, bench.parent, answers[:prompts])
    sys.exit(f"{VARIABLE}: no bench in float32 over {prompts} published prompts in {folder}/bench; see README.md")


def _campaign(folder: Path, bench: Path, answers: list[Request]) -> Campaign:
    made_from = {"bench": _inputs(bench)}
    made_from["export"] = _inputs(folder / "export" / made_from["bench"]["export"])
    made_from["train"] = _inputs(folder / "train" / made_from["export"]["train"])
    return Campaign(
        target=folder / "target" / made_from["bench"]["target"],
        store=folder / "extract" / made_from["train"]["extract"],
        vocab=folder / "vocab" / made_from["train"]["vocab"],
        answers=answers,
        engine=_engine(folder.parent),
    )


def _inputs(artifact: Path) -> dict[str, str]:
    manifest = read_manifest(artifact)
    if manifest is None:
        sys.exit(f"{VARIABLE}: the artifact {artifact} is not whole")
    inputs: dict[str, str] = manifest["inputs"]
    return inputs


def _engine(workspace: Path) -> str | None:
    for manifest in workspace.glob("*/setup/*/manifest.json"):
        environments: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))["summary"]["environments"]
        python = environments.get("vllm", {}).get("python", "")
        if Path(python).is_file():
            return str(python)
    return None


def _request(row: dict[str, Any]) -> Request:
    return Request(row["id"], row["prompt_tokens"], row["tokens"], row["accepted"])


def first_of(source: Path, directory: Path, conversations: int) -> Path:
    """A store of the first ``conversations`` of the training split and of all that is held out; made once."""
    if (directory / "store.json").is_file():
        return directory
    store = open_store(source)
    directory.mkdir(parents=True)
    writer = StoreWriter(directory, store.stamp, SHARD_BYTES)
    for split, count in (("train", conversations), ("holdout", None)):
        for row in store.rows(split)[:count]:
            writer.add(split, row.index, row.token_ids.tolist(), _spans(row), _states(row, store.stamp.hidden_size))
    writer.close()
    return directory


def _spans(row: Row) -> list[list[int]]:
    padded = torch.nn.functional.pad(row.loss_mask.long(), (1, 1))
    return list(map(list, zip(*((padded.diff() == edge).nonzero()[:, 0].tolist() for edge in (1, -1)), strict=True)))


def _states(row: Row, width: int) -> torch.Tensor:
    return torch.cat([row.aux[:-1].unflatten(1, (-1, width)), row.last[:-1, None]], 1)
