"""What the mock answers to questions about hosts, processes and artifacts."""

from __future__ import annotations

from typing import Any

from eagle3_backend.control.commands import (
    AddHost,
    Artifact,
    Artifacts,
    Command,
    DeleteArtifact,
    Doctor,
    Forecast,
    Hosts,
    Locks,
    Orphans,
    Processes,
    Shell,
)
from eagle3_backend.findings import FindingError, error
from eagle3_tui.mockfleet import NAMES

GIB = 2**30
ASKED = (AddHost, Artifact, Artifacts, DeleteArtifact, Doctor, Forecast, Hosts, Locks, Orphans, Processes, Shell)


def answer(command: Command, scene: str) -> Any:
    """The answer to one of `ASKED`."""
    if isinstance(command, Artifact):
        return _artifact(command.stage) if command.stage not in ("train", "bench") or scene == "done" else None
    if isinstance(command, Artifacts):
        return {"artifacts": _artifacts(scene), "left_off": 0}
    if isinstance(command, DeleteArtifact):
        return _delete(command.path)
    if isinstance(command, Forecast):
        return _forecast(scene)
    if isinstance(command, Processes):
        return {"processes": _processes()}
    if isinstance(command, Locks):
        return {"locks": _locks(scene), "problem": None}
    if isinstance(command, Orphans):
        return {"orphans": [_ORPHAN] if scene == "failed" else []}
    if isinstance(command, AddHost):
        return str(command.folder / f"{command.name}.toml")
    if isinstance(command, Hosts):
        return {"hosts": [{"name": "h200-a", "address": "h200-a", "workspaces": ["/data/eagle3"],
                           "host_name": "node17", "seen": "2026-11-29T13:58:00Z"},
                          *({"name": name, "address": name, "workspaces": ["/data/eagle3"]} for name in NAMES),
                          {"name": "embedded", "address": "embedded", "workspaces": ["/home/ana/eagle3"],
                           "seen": "2026-11-27T09:12:44Z"}],
                "candidates": ["h100-b", "lab"]}  # fmt: skip
    if isinstance(command, Shell):
        return {"argv": ["/bin/sh", "-c", "echo No host is behind this panel.; exec /bin/sh"], "directory": ""}
    return {"checks": [_check(*entry) for entry in _CHECKS]}


_ORPHAN = {
    "stage": "train", "run": "qwen3-8b-train-51c0", "attempt": 1, "campaign": "qwen3-8b",
    "remark": "supervisor gone, 2 process(es) work on",
    "processes": [{"pid": 41233, "command": "python -m eagle3_backend.stages train"},
                  {"pid": 41290, "command": "python -m torch._inductor.compile_worker"}],
}  # fmt: skip


def _locks(scene: str) -> list[dict[str, Any]]:
    """One run holds its output and six GPUs; in the failed scene what is left of it does, without a supervisor."""
    if scene not in ("train", "failed"):
        return []
    left = scene == "failed"
    held = [("artifact", "/data/eagle3/qwen3-8b/train/51c0d2e4"), *(("gpu", f"GPU-{index}") for index in range(6))]
    holders = _ORPHAN["processes"] if left else [
        {"pid": 41188, "command": "python -m eagle3_backend.agent.supervisor"},
        {"pid": 41200, "command": "python -m eagle3_backend.stages train --rank 0"},
    ]  # fmt: skip
    return [
        {"kind": kind, "thing": thing, "run": "qwen3-8b-train-51c0", "user": "ana", "since": 1_764_415_324.0,
         "seconds": 9607.0, "orphaned": left, "processes": holders}
        for kind, thing in held
    ]  # fmt: skip


_SECONDS = {"train": 6000.0, "evaluate": 260.0, "export": 40.0, "bench": 720.0}
_FIRST_SECONDS = {"setup": 240.0, "target": 30.0, "prompts": 1.0, "generate": 300.0, "extract": 5.0, "vocab": 2.0,
                  "train": 270.0, "export": 4.0, "bench": 168.0}  # fmt: skip


def _forecast(scene: str) -> dict[str, Any]:
    first = scene in ("first", "connecting")
    expected = {} if scene == "done" else _FIRST_SECONDS if first else _SECONDS
    price, seconds = 0.0 if first else 28.0, sum(expected.values())
    entries = [{"stage": name, "seconds": value, "bytes": 0} for name, value in expected.items()]
    size = 0 if scene == "done" else 7_700_000_000 if first else 6_000_000_000
    return {"stages": entries, "total": {"seconds": seconds, "bytes": size, "cost": price * seconds / 3600}}


_CHECKS = (
    ("link", "gateway", "ok", "protocol 1, h200-a", ""),
    ("link", "round trip", "ok", "38 ms", ""),
    ("link", "clock", "ok", "the host is +0.2 s off", ""),
    ("workspace", "disk", "warn", "81 % of /data is used", "Delete artifacts that are out of date."),
    ("workspace", "write", "ok", "/data/eagle3 can be written", ""),
    ("gpu", "driver", "ok", "8 x NVIDIA H200, driver 580.65", ""),
)


def _check(area: str, name: str, level: str, message: str, fix: str) -> dict[str, str]:
    return {"area": area, "name": name, "level": level, "message": message, "fix": fix}


def _processes() -> list[dict[str, Any]]:
    ours = [
        {"pid": 41200 + index, "user": "ana", "command": f"python -m eagle3_backend.stages train --rank {index}",
         "cpu_percent": 99.0 - index, "memory": (12 + index) * GIB, "gpus": [index], "run": "qwen3-8b-train-51c0",
         "attempt": 1}
        for index in range(6)
    ]  # fmt: skip
    others = [
        {"pid": 39120, "user": "bo", "command": "python serve.py --model llama", "cpu_percent": 41.0,
         "memory": 20 * GIB, "gpus": [6], "run": "", "attempt": 0},
        {"pid": 812, "user": "root", "command": "/usr/bin/dockerd -H fd://", "cpu_percent": 1.2,
         "memory": GIB // 4, "gpus": [], "run": "", "attempt": 0},
    ]  # fmt: skip
    return ours + others


def _artifact(stage: str) -> dict[str, Any]:
    files = [
        {"path": "train-00000.safetensors", "bytes": 180 * GIB, "sha256": "9f1c" + "0" * 60},
        {"path": "holdout-00000.safetensors", "bytes": 6 * GIB, "sha256": "77ad" + "0" * 60},
        {"path": "store.json", "bytes": 1483, "sha256": "0c44" + "0" * 60},
    ]
    return {"path": f"/data/eagle3/qwen3-8b/{stage}/51c0d2e4", "kind": stage, "fingerprint": "51c0d2e4",
            "bytes": 186 * GIB, "made_by": {"run": f"qwen3-8b-{stage}-51c0", "attempt": 1}, "files": files,
            "file_count": 3}  # fmt: skip


_STORED: tuple[tuple[str, str, bool, bool, int, list[str]], ...] = (
    ("extract", "51c0d2e4", True, False, 186 * GIB, ["train", "evaluate"]),
    ("extract", "77ad90b1", False, False, 171 * GIB, []),
    ("extract", "51c0d2e4.old-20261128T101502-8121", False, True, 92 * GIB, []),
    ("vocab", "51c0d2e4", True, False, 1_836_000, ["train", "evaluate", "export"]),
    ("train", "51c0d2e4", True, False, 5 * GIB, ["evaluate", "export"]),
)
"""Stage, name, whether it is the planned one, and set aside; bytes; the stages that need it."""


def _artifacts(scene: str) -> list[dict[str, Any]]:
    if scene in ("first", "connecting"):
        return []
    return [
        {"path": f"/data/eagle3/qwen3-8b/{stage}/{name}", "stage": stage, "name": name, "fingerprint": name[:8],
         "planned": planned, "aside": aside, "whole": stage != "train" or scene == "done", "bytes": size,
         "run": f"qwen3-8b-{stage}-51c0", "attempt": 1, "modified": 1_764_415_320.0, "needed_by": needed}
        for stage, name, planned, aside, size, needed in _STORED
    ]  # fmt: skip


def _delete(path: str) -> dict[str, Any]:
    if path.endswith("train/51c0d2e4"):
        raise FindingError(
            error(
                "artifact_in_use",
                "qwen3-8b-train-51c0, attempt 1, is running and writes this artifact.",
                path=path,
                fix="Wait for it, or stop it first.",
            )
        )
    return {"path": path, "deleted": True, "bytes": next(one[4] for one in _STORED if path.endswith(one[1]))}
