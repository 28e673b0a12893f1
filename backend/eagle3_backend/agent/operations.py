"""What a gateway can be asked, one method an operation; each takes the request and returns the result."""

from __future__ import annotations

import getpass
import hashlib
import importlib.metadata
import json
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from eagle3_backend.agent import cgroup, follow, frames, launch, runs, stopping, stored
from eagle3_backend.agent.frames import field
from eagle3_backend.agent.identity import this_host
from eagle3_backend.agent.workspace import ENDPOINT, Workspace, read_json
from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.artifacts import read_manifest

MAX_READ = 512 * 1024
"""Most bytes that one ``read`` returns: base64 and the frame around them stay under a frame's limit."""

MAX_LIST = 900 * 1024
"""Most bytes of attempts in one answer."""

MAX_STORED = 500
"""Most artifacts in one answer."""


class Operations:
    """The operations on one workspace. Everything beyond the standard library is imported by what needs it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._runs = runs.RunList(workspace)
        self._telemetry: Any = None
        self._usage: Any = None
        self._telemetry_lock = threading.Lock()
        self._operations: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "hello": self._hello,
            "ping": self._ping,
            "runs": self._list_runs,
            "artifacts": self._artifacts,
            "stored": self._stored,
            "delete": self._delete,
            "start": self._start,
            "stop": self._stop,
            "read": self._read,
            "telemetry": lambda request: self.sample(),
            "processes": self._processes,
            "locks": self._locks,
            "probe": self._probe,
            "inspect": self._inspect,
            "engine_options": self._engine_options,
            "doctor": self._doctor,
            "put": self._put,
            "endpoint": self._endpoint,
            "scrape": self._scrape,
            "adopt_host": self._adopt_host,
        }

    def perform(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The result of one request. Raises FindingError, OSError."""
        operation = self._operations.get(request["op"])
        if operation is None:
            raise FindingError(
                error(
                    "operation_unknown",
                    f"This gateway knows no operation {request['op'][:80]}.",
                    expected=[*self._operations, "follow", "unfollow", "watch"],
                    actual=request["op"][:80],
                )
            )
        return operation(request)

    def _hello(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            workspace_id: Optional[str] = self._workspace.prepare()
        except OSError:
            # A workspace that cannot be written is doctor's to explain; the link itself is fine.
            workspace_id = None
        return {
            "protocol": frames.PROTOCOL,
            "python": platform.python_version(),
            "psutil": _version("psutil"),
            **this_host().to_json(),
            **self._ping(request),
            "workspace": str(self._workspace.root),
            "workspace_id": workspace_id,
            "uid": os.getuid(),
            "user": _user(),
            "system": platform.system(),
            "cpu_count": cgroup.cpu_count(),
        }

    def _ping(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {"wall": time.time(), "monotonic": time.monotonic()}

    def _list_runs(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """All attempts, or the newest that fit into a frame; ``left_off`` counts the others."""
        entries = [description.to_json() for description in self._runs.read()]
        kept, room = set(), MAX_LIST
        for entry in sorted(entries, key=lambda entry: entry["started"] or 0.0, reverse=True):
            room -= len(json.dumps(entry, default=str))
            if room < 0:
                break
            kept.add((entry["run"], entry["attempt"]))
        listed = [entry for entry in entries if (entry["run"], entry["attempt"]) in kept]
        return {"runs": listed, "left_off": len(entries) - len(listed)}

    def _artifacts(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Manifests of whole artifacts; with ``files`` the first of their files, too, as a store may have thousands."""
        found: Dict[str, Any] = {}
        listed = field(request, "files", int, 0)
        for path in field(request, "paths", list):
            manifest = read_manifest(Path(str(path)))
            if manifest is not None:
                files = manifest.pop("files")
                manifest["bytes"] = sum(entry["bytes"] for entry in files)
                if listed:
                    manifest["files"], manifest["file_count"] = files[:listed], len(files)
            found[str(path)] = manifest
        return {"artifacts": found}

    def _stored(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The artifacts that lie in a campaign's folder, the newest that fit into a frame."""
        entries = stored.listed(self._workspace, field(request, "campaign", str))
        kept = sorted(entries, key=lambda entry: float(entry["modified"]), reverse=True)[:MAX_STORED]
        return {"artifacts": kept, "left_off": len(entries) - len(kept)}

    def _delete(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return stored.delete(self._workspace, field(request, "path", str), self._runs.read())

    def _start(self, request: Dict[str, Any]) -> Dict[str, Any]:
        self._workspace.prepare()
        return launch.start(
            self._workspace,
            field(request, "spec", dict),
            request=field(request, "request", str, ""),
            by=field(request, "by", str, _user()),
            secrets=field(request, "secrets", dict, {}),
            restart=field(request, "restart", bool, False),
            attempt=field(request, "attempt", int, None),
            asked_ago=field(request, "asked_ago", float, 0.0),
        )

    def _stop(self, request: Dict[str, Any]) -> Dict[str, Any]:
        state = stopping.stop(
            self._workspace,
            field(request, "run", str),
            field(request, "attempt", int),
            by=field(request, "by", str, _user()),
            kill=field(request, "kill", bool, False),
        )
        return {"state": state.value}

    def _read(self, request: Dict[str, Any]) -> Dict[str, Any]:
        directory = self._workspace.existing(field(request, "run", str), field(request, "attempt", int))
        path = directory / follow.check_name(field(request, "file", str), follow.READABLE)
        offset, length = max(0, field(request, "offset", int, 0)), field(request, "length", int, MAX_READ)
        generation = follow.generation_of(directory) if path.name in follow.FOLLOWED else None
        try:
            with open(path, "rb") as file:
                data = os.pread(file.fileno(), max(0, min(length, MAX_READ)), offset)
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            data, size = b"", 0
        return {"generation": generation, "offset": offset, "data": frames.to_text(data), "size": size}

    def sample(self) -> Dict[str, Any]:
        """The machine's gauges right now."""
        try:
            from eagle3_backend.agent.telemetry import Telemetry
        except ImportError as problem:
            raise FindingError(launch.without_psutil(problem)) from problem
        with self._telemetry_lock:
            if self._telemetry is None:
                self._telemetry = Telemetry(self._workspace.root)
            return dict(self._telemetry.sample())

    def _processes(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Who uses the machine, as far as we may look."""
        try:
            from eagle3_backend.agent.usage import Usage
        except ImportError as problem:
            raise FindingError(launch.without_psutil(problem)) from problem
        with self._telemetry_lock:
            if self._usage is None:
                self._usage = Usage(self._workspace.runs)
            return {"processes": self._usage.sample()}

    def _locks(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The held locks of this user, as `held_locks` tells them, and whether what holds them lost its supervisor."""
        from eagle3_backend.agent import held_locks

        found, problem = held_locks.held()
        orphans = {process.pid for description in self._runs.read() for process in description.orphans}
        for lock in found:
            lock["orphaned"] = any(process["pid"] in orphans for process in lock["processes"])
        return {"locks": found, "problem": problem.to_json() if problem else None}

    def _probe(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from eagle3_backend.agent import probes

        return probes.probe(request)

    def _inspect(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What a model directory holds; only its config and headers are read, and only these are told."""
        from eagle3_backend.drafter.folder import LocalFolder
        from eagle3_backend.drafter.inspection import inspect

        path = self._workspace.root / Path(field(request, "path", str)).expanduser()
        return inspect(LocalFolder(path)).to_json()

    def _engine_options(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from eagle3_backend.agent import engine_options

        return engine_options.ask(request)

    def _doctor(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from eagle3_backend.agent.doctor import examine

        return {"checks": examine(self._workspace, request)}

    def _put(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Take a piece of a file; the last one is checked against the whole file's hash and gives it its name."""
        path = self._upload_path(field(request, "name", str))
        data, offset = frames.data_field(request), field(request, "offset", int)
        part = path.with_name(path.name + ".part")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(part, "r+b" if offset and part.exists() else "wb") as file:
            size = os.fstat(file.fileno()).st_size
            if offset > size:
                raise FindingError(
                    error("put_gap", "This piece does not follow the last one.", path="offset", expected=size)
                )
            file.seek(offset)
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        if field(request, "last", bool, False):
            actual, wanted = hashlib.sha256(part.read_bytes()).hexdigest(), field(request, "sha256", str)
            if actual != wanted:
                part.unlink()
                raise FindingError(
                    error(
                        "upload_corrupt",
                        f"{path.name} arrived damaged.",
                        path=str(path),
                        expected=wanted,
                        actual=actual,
                    )
                )
            os.replace(part, path)
        return {"path": str(path), "size": offset + len(data)}

    def _upload_path(self, name: str) -> Path:
        parts = Path(name).parts
        if len(parts) < 2 or parts[0] not in ("uploads", "payload") or ".." in parts:
            raise FindingError(
                error("request_invalid", "A file is put under uploads/ or payload/.", path="name", actual=name[:200])
            )
        return self._workspace.state.joinpath(*parts)

    def _endpoint(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Port and key of a running engine; those of an ended one are nobody's business."""
        run, attempt = field(request, "run", str), field(request, "attempt", int)
        directory = self._workspace.existing(run, attempt)
        endpoint = read_json(directory / ENDPOINT)
        if endpoint is None or not runs.describe(self._workspace, run, attempt).state.is_active:
            raise FindingError(error("endpoint_absent", f"{run} has no engine at work.", path=run))
        return endpoint

    def _scrape(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from eagle3_backend.agent import probes

        return probes.scrape(field(request, "port", int), field(request, "path", str))

    def _adopt_host(self, request: Dict[str, Any]) -> Dict[str, Any]:
        lost = [str(entry) for entry in field(request, "lost", list)]
        here = this_host()
        if {here.boot_id, here.host_name} & set(lost):
            raise FindingError(error("request_invalid", "A host cannot declare itself lost.", path="lost", actual=lost))
        self._workspace.replace_hosts(lost)
        return {"lost": sorted(self._workspace.replaced())}


def _version(distribution: str) -> Optional[str]:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
