"""What does this log say?"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.engines.server_log import Probe, ServerLog
from eagle3_backend.engines.training_log import TrainingLog


def run(folder: Path, given: dict[str, Any]) -> Answer:
    facts = json.loads((folder / given["facts"]).read_text(encoding="utf-8")) if "facts" in given else {}
    data = (folder / given["log"]).read_bytes()
    log = TrainingLog() if given["kind"] == "train" else ServerLog(given["kind"].removesuffix("_serve"))
    log.feed_bytes(data)
    log.close()
    shared = {
        "exit_code": given.get("exit_code", facts.get("exit_code")),
        "silence": _seconds(facts, "last_output"),
        "gpus": facts.get("gpu_util", ()),
    }
    if isinstance(log, TrainingLog):
        diagnosis = log.diagnose(**shared, unwritten=_seconds(facts, "checkpoint_dir_mtime"))
    else:
        probe, plan = given.get("health_probe"), given.get("plan", {})
        diagnosis = log.diagnose(
            **shared,
            probe=Probe(probe["http"], probe["model"]) if probe else None,
            served_model=plan.get("served_model", ""),
            port=plan.get("port"),
        )
    values = {"state": diagnosis.state, "phase": diagnosis.phase, "ready": diagnosis.ready, **diagnosis.facts}
    return Answer(diagnosis.findings, values)


def _seconds(facts: dict[str, Any], name: str) -> float | None:
    if name not in facts or "now" not in facts:
        return None
    return (datetime.fromisoformat(facts["now"]) - datetime.fromisoformat(facts[name])).total_seconds()
