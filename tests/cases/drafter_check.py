"""Does this drafter fit this target on this engine? Of the config alone, or with the weights in a directory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.drafter.checks import Subject, check, facts
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.findings import FindingError


def run(folder: Path, given: dict[str, Any]) -> Answer:
    inventory = None
    if "draft_dir" in given:
        config = _json(folder / given["draft_dir"] / "config.json")
        inventory = _inside(read_inventory(LocalFolder(folder / given["draft_dir"])), folder)
    else:
        config = _json(folder / given["draft_config"])
    if "tensor_manifest" in given:
        manifest = given["tensor_manifest"]
        inventory = Inventory.from_manifest(manifest if isinstance(manifest, dict) else _json(folder / manifest))
    asked = {
        "version": given.get("engine_version", ""),
        "target": _json(folder / given["target_config"]) if "target_config" in given else None,
        "inventory": inventory,
        "context": given.get("context"),
    }
    findings = tuple(check(config, given["engine"], **asked))
    try:
        known = facts(Subject.of(config, given["engine"], **asked))
    except FindingError:
        known = {}
    target = known.pop("target", {})
    return Answer(findings, {**known, **{f"target.{name}": value for name, value in target.items()}})


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _inside(inventory: Inventory, folder: Path) -> Inventory:
    """Files are named from the case folder on."""
    root = os.path.join(str(folder), "")
    named = [
        replace(finding, path=finding.path[len(root) :] if finding.path.startswith(root) else finding.path)
        for finding in inventory.findings
    ]
    return replace(inventory, findings=tuple(named))
