"""What differs between two configs, in effect?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.drafter import diff
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.jsonfile import read_object


def run(folder: Path, given: dict[str, Any]) -> Answer:
    findings, configs = [], []
    for name in (given["left"], given["right"]):
        config, found = read_object(LocalFolder((folder / name).parent), Path(name).name)
        findings += found
        configs.append(config)
    if None in configs:
        return Answer(tuple(findings))
    return Answer(tuple(findings), diff.summary(diff.compare(*configs)))
