"""The config.json of a model, found by the path that a person types: the directory, or the file itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Tuple

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.jsonfile import read_object
from eagle3_backend.findings import Finding, FindingError

CONFIG = "config.json"
_FIX = "Name a model's directory that holds a config.json, or the config.json itself."


@dataclass(frozen=True)
class ConfigFile:
    """A config as a file holds it. ``findings`` are the file's own faults that still let it be read."""

    path: str
    config: Dict[str, Any]
    text: str
    findings: Tuple[Finding, ...] = ()


def open_config(path: str) -> ConfigFile:
    """Read a local config.json given by its own path or by its directory's. Raises FindingError."""
    place = Path(os.path.expanduser(path))
    folder, name = (place, CONFIG) if place.is_dir() else (place.parent, place.name)
    files = LocalFolder(folder)
    config, findings = read_object(files, name)
    if config is None:
        raise FindingError(*(finding if finding.fix else replace(finding, fix=_FIX) for finding in findings))
    text = files.read(name, 0, files.size(name)).decode("utf-8", "replace")
    return ConfigFile(str(folder / name), config, text, tuple(findings))
