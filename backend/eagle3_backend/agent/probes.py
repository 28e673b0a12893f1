"""Small questions about a host: room, ports, paths, and the metrics page of an engine on its loopback."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import socket
from pathlib import Path
from typing import Any, Dict, Optional

from eagle3_backend.agent import processes
from eagle3_backend.agent.frames import field
from eagle3_backend.findings import FindingError, error

SCRAPE_SECONDS = 5.0
MAX_PAGE = 768 * 1024
"""Longest page that is handed on, bytes; vLLM's metrics are about 100 KB."""


def probe(request: Dict[str, Any]) -> Dict[str, Any]:
    """Answer ``what``: disk, port, path or file. Raises FindingError, OSError."""
    what = field(request, "what", str)
    if what == "disk":
        return {"mounts": [room(str(path)) for path in field(request, "paths", list)]}
    if what == "port":
        return port(field(request, "port", int))
    if what == "path":
        return describe_path(field(request, "path", str))
    if what == "file":
        return describe_file(field(request, "path", str))
    raise FindingError(
        error(
            "request_invalid", "This is no probe.", path="what", expected=["disk", "port", "path", "file"], actual=what
        )
    )


def room(path: str) -> Dict[str, Any]:
    """Mount, free and total bytes for a path that may not exist yet: those of its nearest parent."""
    place = Path(os.path.abspath(os.path.expanduser(path)))
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    mount = place.resolve()
    while not os.path.ismount(mount):
        mount = mount.parent
    return {"path": path, "mount": str(mount), "free_bytes": usage.free, "total_bytes": usage.total}


def port(number: int) -> Dict[str, Any]:
    """Whether an engine could listen on 127.0.0.1:number, and who does already where the kernel tells."""
    if not 0 < number < 65536:
        raise FindingError(error("request_invalid", "This is no TCP port.", path="port", actual=number))
    with socket.socket() as trial:
        # As servers do: connections of an ended one that still linger do not make a port taken.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", number))
            trial.listen(1)
        except OSError:
            return {"free": False, "owner": _owner(number)}
    return {"free": True, "owner": None}


def _owner(number: int) -> Optional[str]:
    try:
        import psutil
    except ImportError:
        return None
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1] == number and connection.pid:
            return f"{processes.command_line(connection.pid)} (pid {connection.pid})"
    return None


def describe_path(path: str) -> Dict[str, Any]:
    place = Path(path).expanduser()
    try:
        status = place.stat()
    except OSError:
        return {"exists": False, "is_dir": False, "executable": False, "size": None}
    return {
        "exists": True,
        "is_dir": place.is_dir(),
        "executable": place.is_file() and os.access(place, os.X_OK),
        "size": status.st_size,
    }


def describe_file(path: str) -> Dict[str, Any]:
    """Size and SHA-256 of a file, null when it is absent."""
    place = Path(path).expanduser()
    if not place.is_file():
        return {"exists": False, "size": None, "sha256": None}
    digest = hashlib.sha256()
    with open(place, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return {"exists": True, "size": place.stat().st_size, "sha256": digest.hexdigest()}


def scrape(number: int, path: str) -> Dict[str, Any]:
    """GET a page of an engine on this host's loopback. Raises FindingError when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=SCRAPE_SECONDS)
    try:
        connection.request("GET", path if path.startswith("/") else f"/{path}")
        response = connection.getresponse()
        page = response.read(MAX_PAGE + 1)
    except (OSError, http.client.HTTPException) as problem:
        raise FindingError(
            error("endpoint_silent", f"127.0.0.1:{number}{path} does not answer: {problem}.", path=f"{number}{path}")
        ) from problem
    finally:
        connection.close()
    if len(page) > MAX_PAGE:
        raise FindingError(error("answer_too_large", f"{path} is longer than {MAX_PAGE} bytes.", path=path))
    return {"status": response.status, "text": page.decode("utf-8", "replace")}
