"""A campaign in small for the bench and serve stages as processes, with stand-ins for the engines' servers
(`stand_in_engine.py`, `stand_in_sglang.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.pipeline.stages import STAGES

HERE = Path(__file__).parent
PROGRAMS = {
    "vllm": [sys.executable, str(HERE / "stand_in_engine.py"), "serve", "{model}"],
    "sglang": [
        *(sys.executable, str(HERE / "stand_in_sglang.py")),
        *("--config", "{config}", "--model-path", "{model}"),
    ],
}


@dataclass
class Attempt:
    """One attempt of a stage as a real process."""

    directory: Path
    output: Path
    process: subprocess.Popen[bytes]

    def end(self) -> int:
        return self.process.wait(timeout=60)

    def lines(self, kind: str) -> list[dict[str, Any]]:
        text = (self.directory / "journal.jsonl").read_text(encoding="utf-8")
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]

    def codes(self) -> list[str]:
        return [line["code"] for line in self.lines("finding")]

    @property
    def summary(self) -> dict[str, Any]:
        manifest = read_manifest(self.output)
        assert manifest is not None, (self.directory / "output.log").read_text()
        return dict(manifest["summary"])

    def wait_for(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None, (self.directory / "output.log").read_text()
            time.sleep(0.05)

    def engine_pids(self) -> list[int]:
        notes = [line["text"] for line in self.lines("note") if line["text"].startswith("Starting the engine")]
        return [int(text.rsplit(" ", 1)[1]) for text in notes]


class Campaign:
    """The artifacts that bench and serve read, with a few prompts, and starts of both stages; ``env`` is the engines'
    by their plan, ``outside`` that of the stage, which they inherit."""

    def __init__(self, directory: Path, drafters: ModuleType) -> None:
        self.directory = directory
        self.started: list[Attempt] = []
        for name in ("target", "prompts", "conversations"):
            (directory / name).mkdir(parents=True)
        target = {**drafters.TARGET, "max_position_embeddings": 2048}
        (directory / "target/config.json").write_text(json.dumps(target))
        drafter = replace(drafters.DRAFTER, max_position_embeddings=2048)
        drafters.checkpoint(drafter).write(directory / "drafter/flat")
        (directory / "drafter/manifest.json").write_text(json.dumps({"summary": {"aux_layers": [2, 6, 9]}}))
        facts = {"model": str(directory / "target"), "revision": "1", "template_hash": "t"}
        (directory / "target/facts.json").write_text(json.dumps(facts))
        self.prompts("train", ["Name three rivers of Europe."])
        self.prompts("holdout", [f"Describe object number {number} of the household." for number in range(6)])
        self.prompts("published", [f"Question {number}: why is it so?" for number in range(8)])

    def prompts(self, name: str, texts: list[str]) -> None:
        rows = [{"id": f"{name}-{number}", "source": name, "turns": [text]} for number, text in enumerate(texts)]
        (self.directory / f"prompts/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def start(
        self,
        stage: str,
        device: str = "cpu",
        env: dict[str, str] | None = None,
        accepted: Sequence[str] = (),
        outside: dict[str, str] | None = None,
        **parameters: Any,
    ) -> Attempt:
        engine = str(parameters.get("engine", "vllm"))
        inputs = ("target", "prompts", "conversations", "drafter")
        output = self.directory / "ws/campaign" / stage / "f"
        spec = {
            "run": stage,
            "stage": stage,
            "stage_version": 1,
            "fingerprint": "f",
            "parameters": asdict(replace(STAGES[stage].parameters(), **parameters)),
            "inputs": {name: str(self.directory / name) for name in inputs},
            "output": str(output),
            "engine": {
                "engine": engine,
                "device": device,
                "argv": [*PROGRAMS[engine], "--port", "{port}"],
                "env": {"VLLM_CPU_KVCACHE_SPACE": "0", **(env or {})},
                "reasons": {},
                "expects": {},
                "api_key": {"variable": "VLLM_API_KEY"} if engine == "vllm" else {"file": "api-key"},
            },
            "environment": engine,
            "payload": "p",
            "accepted": list(accepted),
        }
        run_directory = self.directory / "runs" / stage / str(len(self.started) + 1)
        run_directory.mkdir(parents=True)
        (run_directory / "spec.json").write_text(json.dumps(spec))
        now = time.monotonic()
        claim = {"asked": now - 2.0, "monotonic": now - 1.5, "wall": time.time()}
        (run_directory / "claim").write_text(json.dumps(claim))
        (run_directory / "supervisor.json").write_text(json.dumps({"began": now}))
        with open(run_directory / "output.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "eagle3_backend.stages", str(run_directory)],
                env={**os.environ, **(outside or {})},
                stdout=log,
                stderr=log,
            )
        self.started.append(Attempt(run_directory, output, process))
        return self.started[-1]
