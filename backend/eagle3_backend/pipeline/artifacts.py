"""Artifacts on a host: a directory with a manifest, written last and atomically."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

MANIFEST = "manifest.json"


def hash_file(path: Path) -> str:
    """SHA-256 of a file, hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write beside, fsync, rename: readers see the old file or the whole new one."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_manifest(
    directory: Path,
    *,
    kind: str,
    spec: Mapping[str, Any],
    attempt: int,
    summary: Mapping[str, Any],
) -> Dict[str, Any]:
    """List every file under ``directory`` with size and hash, and write ``manifest.json`` last."""
    files = [
        {"path": path.relative_to(directory).as_posix(), "bytes": path.stat().st_size, "sha256": hash_file(path)}
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    ]
    manifest = {
        "kind": kind,
        "fingerprint": spec["fingerprint"],
        "stage": spec["stage"],
        "stage_version": spec["stage_version"],
        "made_by": {
            "run": spec["run"],
            "attempt": attempt,
            "payload": spec["payload"],
            "environment": spec["environment"],
        },
        "inputs": dict(spec.get("input_fingerprints") or {}),
        "files": files,
        "summary": dict(summary),
    }
    write_json(directory / MANIFEST, manifest)
    return manifest


def read_manifest(directory: Path) -> Optional[Dict[str, Any]]:
    """The manifest of a whole artifact, or None: absent, unreadable, or a listed file is missing or of another size.

    Hashes are not recomputed here (a store can be hundreds of GB); a consumer that needs them does that.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        for entry in manifest["files"]:
            if (directory / entry["path"]).stat().st_size != entry["bytes"]:
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return manifest if isinstance(manifest, dict) else None
