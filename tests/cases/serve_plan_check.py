"""May this launch go ahead?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.engines.acceptance import judge
from eagle3_backend.engines.log_metrics import LogWindows
from eagle3_backend.engines.preflight import Launch, check
from eagle3_backend.engines.preflight.launch import Host


def run(folder: Path, given: dict[str, Any]) -> Answer:
    files = {
        name: json.loads((folder / given[name]).read_text(encoding="utf-8"))
        for name in ("plan", "draft_config", "target_config", "host")
        if name in given
    }
    plan = files["plan"]
    launch = Launch(
        plan["engine"],
        plan["args"],
        plan.get("env") or {},
        version=given.get("engine_version", ""),
        drafter=files.get("draft_config"),
        target=files.get("target_config"),
        host=Host.of(files["host"]) if "host" in files else None,
        last_is_teacher=given.get("last_is_teacher", True),
    )
    findings, values = check(launch), {}
    if "log" in given:
        log = LogWindows(plan["args"].get("--speculative-num-steps"))
        log.feed_bytes((folder / given["log"]).read_bytes())
        log.close()
        findings += judge(log.drafting)
        values["log.accept_len_mean"] = log.drafting.length
    return Answer(tuple(findings), values)
