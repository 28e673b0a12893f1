"""Is this directory of shards whole and right, and from where would this training go on?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.pipeline.judgement import Judgement
from eagle3_backend.pipeline.run_folders import judge_frequencies, judge_run
from eagle3_backend.pipeline.state_files import judge_state_files


def run(folder: Path, given: dict[str, Any]) -> Answer:
    judged = _judge(folder, given)
    findings = tuple(replace(finding, path=_inside(folder, finding.path)) for finding in judged.findings)
    return Answer(findings, {name: _inside(folder, value) for name, value in judged.values.items()})


def _judge(folder: Path, given: dict[str, Any]) -> Judgement:
    directory = folder / given["dir"]
    plan = json.loads((folder / given["plan"]).read_text(encoding="utf-8")) if "plan" in given else None
    if plan is not None and "expected_samples" in plan:
        return judge_state_files(directory, plan)
    if plan is not None:
        (counted,) = directory.glob("*.meta.json")
        return judge_frequencies(json.loads(counted.read_text(encoding="utf-8")), plan["target"], plan["dataset"])
    log = (folder / given["log"]).read_text(encoding="utf-8") if "log" in given else ""
    acceptance = json.loads((folder / given["metrics"]).read_text(encoding="utf-8")) if "metrics" in given else None
    return judge_run(directory, log, acceptance)


def _inside(folder: Path, value: Any) -> Any:
    """Paths as seen from the case's folder."""
    if isinstance(value, list):
        return [_inside(folder, entry) for entry in value]
    return value.removeprefix(f"{folder}/") if isinstance(value, str) else value
