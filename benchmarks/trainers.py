"""The same training by three trainers: `trainers.py TARGET STORE VOCAB FOLDER [NAME=VALUE...]`, by hand.

TARGET, STORE and VOCAB are artifacts of a campaign (its directories `target`, `extract` and `vocab`), FOLDER takes what
is trained. NAME=VALUE are parameters of `[stages.train]`, such as `epochs=1`. Each trainer runs as the stage does, in
its own environment (`peers/cpu_environment.py`), then `evaluate` drafts from the held-out rows with what came out.
Prints a JSON object: by trainer its steps, seconds, CPU seconds, peak of its processes, and the acceptance length
with its 95 % interval over conversations. No row of the results stands on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measuring import PATHS
from peers import cpu_environment

from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.pipeline.fingerprint import fingerprint
from eagle3_backend.pipeline.stages import STAGES

LIBRARIES = ("speculators", "specforge")


def main(words: list[str]) -> dict[str, dict[str, Any]]:
    target, store, vocab, folder = (str(Path(word).resolve()) for word in words[:4])
    values = dict(word.split("=", 1) for word in words[4:])
    parameters = {name: json.loads(value) for name, value in values.items()}
    inputs = {"target": target, "store": store, "vocab": vocab}
    found: dict[str, dict[str, Any]] = {}
    for trainer in ("native", *LIBRARIES):
        python = cpu_environment.main(trainer) if trainer in LIBRARIES else sys.executable
        trained, summary = attempt(Path(folder), "train", inputs, {**parameters, "trainer": trainer}, python)
        _, report = attempt(Path(folder), "evaluate", {**inputs, "checkpoint": str(trained)}, {}, sys.executable)
        names = ("steps", "seconds", "cpu_seconds", "peak_mib")
        length = report["acceptance_length"]
        found[trainer] = {**{name: summary.get(name) for name in names}, "acceptance_length": length}
        print(trainer, found[trainer], file=sys.stderr, flush=True)
    return found


def attempt(
    folder: Path, stage: str, inputs: dict[str, str], values: dict[str, Any], python: str
) -> tuple[Path, dict[str, Any]]:
    """Run a stage as a host does; its artifact and what it says of itself. One that is whole is not made again."""
    declared = STAGES[stage]
    parameters = declared.parameters(**values)
    name = fingerprint(declared, parameters, inputs)
    output = folder / "trainers" / stage / name
    if made := read_manifest(output):
        return output, made["summary"]
    run = folder / "runs" / name
    number = 1 + sum(path.is_dir() for path in run.iterdir()) if run.is_dir() else 1
    directory = run / str(number)
    directory.mkdir(parents=True)
    spec = {
        "run": name,
        "stage": stage,
        "stage_version": declared.version,
        "fingerprint": name,
        "parameters": asdict(parameters),
        "inputs": inputs,
        "output": str(output),
        "environment": declared.environment_of(parameters),
        "payload": "",
    }
    (directory / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    with open(directory / "output.log", "wb") as log:
        argv = [python, "-m", "eagle3_backend.stages", str(directory)]
        ended = subprocess.run(argv, env={**os.environ, "PYTHONPATH": PATHS}, stdout=log, stderr=log, check=False)
    made = read_manifest(output)
    assert made is not None, f"{stage} ended with {ended.returncode}: {directory}/output.log"
    return output, made["summary"]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
