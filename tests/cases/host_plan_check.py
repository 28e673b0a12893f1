"""Is there room for this step?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.pipeline.forecast import Shape, disk_findings, mount_of, store_bytes


def run(folder: Path, given: dict[str, Any]) -> Answer:
    plan = json.loads((folder / given["plan"]).read_text(encoding="utf-8"))
    host = json.loads((folder / given["host"]).read_text(encoding="utf-8"))
    shape = Shape(plan["layers"], plan["hidden_size"], plan["bytes_per_value"])
    needed = store_bytes(plan["samples"], plan["mean_tokens"], shape)
    mounts = {entry["mount"]: entry["free_bytes"] for entry in host["df"]}
    return Answer(
        disk_findings(needed, plan["dir"], mounts), {"bytes_needed": needed, "mount": mount_of(plan["dir"], mounts)}
    )
