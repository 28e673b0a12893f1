"""Replays what `engine_lab.py` printed: run in the train environment, ``python replay_lab.py REQUEST ANSWERS``.

REQUEST names what is right: ``{"artifact": of the target, "checkpoint", "vocab": artifacts, "dtype", "depth"}``.
ANSWERS has the lines of the engine lab. One line of JSON is printed for each drafter that was served: ``{"drafter",
"steps", "equal_share", "codes"}``, the codes of the diagnosis, the verdict first.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.stages import diagnose
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.replay import TargetStates
from eagle3_backend.stages.train import use_all_cores


class RememberedStates(TargetStates):
    """Greedy texts are the same with every drafter: the target reads each of them once."""

    known: ClassVar[dict[tuple[int, ...], Any]] = {}

    def __init__(self, model: Path, layers: Any, **options: Any) -> None:
        if not hasattr(RememberedStates, "whole"):
            every = range(json.loads((model / "config.json").read_text())["num_hidden_layers"] + 1)
            super().__init__(model, every, **options)
            RememberedStates.whole = self
        self.embedding = RememberedStates.whole.embedding

    def __call__(self, tokens: Any) -> Any:
        key = tuple(tokens)
        if key not in self.known:
            self.known[key] = TargetStates.__call__(RememberedStates.whole, tokens)
        return self.known[key]


def main() -> None:
    use_all_cores()
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    diagnose.TargetStates = RememberedStates
    for line in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "answers" in entry:
            with tempfile.TemporaryDirectory() as folder:
                print(json.dumps({"drafter": entry["drafter"], **diagnosed(Path(folder), request, entry)}))


def diagnosed(folder: Path, request: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """One drafter as the stage would see it: its directory in an artifact, and a bench with these answers."""
    campaign = folder / "campaign"
    for stage in ("train", "vocab", "export"):
        (campaign / stage).mkdir(parents=True)
    (campaign / "train" / "it").symlink_to(request["checkpoint"])
    (campaign / "vocab" / "it").symlink_to(request["vocab"])
    export = campaign / "export" / "it"
    export.mkdir()
    (export / "spoiled").symlink_to(entry["drafter"])
    write_json(
        export / "manifest.json",
        {"inputs": {"train": "it", "vocab": "it"}, "summary": {"dtype": request["dtype"]}},
    )
    answers = [{"set": "published", "id": str(place), **answer} for place, answer in enumerate(entry["answers"])]
    recipe = {"dtype": "float32", "temperature": 0.0, "depth": request["depth"], "layout": "spoiled"}
    write_json(folder / "bench.json", {"recipe": recipe, "answers": answers})
    context = _context(folder, {"target": request["artifact"], "drafter": export, "comparison": folder})
    report = diagnose.Diagnosis(context, diagnose.of_bench(context)).report()
    return {
        "steps": report["steps"],
        "equal_share": report["equal_share"],
        "codes": [finding["code"] for finding in report["findings"]],
    }


def _context(folder: Path, inputs: dict[str, Any]) -> StageContext:
    attempt = folder / "runs" / "1"
    attempt.mkdir(parents=True)
    spec = {
        "stage": "diagnose",
        "parameters": {"tried": 6},
        "inputs": {kind: str(path) for kind, path in inputs.items()},
        "output": str(folder / "w" / "campaign" / "diagnose" / "it"),
        "fingerprint": "it",
    }
    write_json(attempt / "spec.json", spec)
    return StageContext(attempt)


if __name__ == "__main__":
    main()
