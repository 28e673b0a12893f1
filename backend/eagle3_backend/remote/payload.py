"""The payload: the code that runs on a host, as one zip named by its hash."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import secrets
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import eagle3_backend
from eagle3_backend.findings import FindingError, error
from eagle3_backend.remote.link import Link, shell

_PURE = ("findings.py", "states.py", "pipeline", "drafter", "engines")
_HOST = ("hub.py", "prompt_sources.py", "agent", "stages")
_DATE = (1980, 1, 1, 0, 0, 0)

_UNPACK = """
import hashlib, os, shutil, sys, tempfile, zipfile
archive, digest, target = sys.argv[1:]
with open(archive, "rb") as file:
    found = hashlib.sha256(file.read()).hexdigest()
if found != digest:
    sys.exit("the payload arrived damaged: " + found)
if not os.path.isdir(target):
    folder = tempfile.mkdtemp(prefix=".", dir=os.path.dirname(target))
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    try:
        os.rename(folder, target)
    except OSError:
        shutil.rmtree(folder)
        if not os.path.isdir(target):
            raise
os.unlink(archive)
"""
"""Runs on the host: two laptops may unpack the same payload at once, the first rename wins."""


@dataclass(frozen=True)
class Payload:
    """``data`` is the zip, ``sha256`` its hash."""

    data: bytes
    sha256: str

    def directory(self, workspace: str) -> str:
        """Where it lies unpacked on a host: the PYTHONPATH of agent and stages."""
        return f"{workspace}/.eagle3/payload/{self.sha256[:12]}"


@cache
def build() -> Payload:
    """Zip the pure rooms, the readers of prompt sets, the agent, the stages and the kernels as installed here; same
    files, same bytes."""
    backend = Path(eagle3_backend.__file__).parent
    # Found, not imported: the kernels need torch, which the laptop has not.
    found = importlib.util.find_spec("eagle3_kernels")
    assert found and found.origin
    kernels = Path(found.origin).parent
    files: dict[str, Path] = {"eagle3_backend/__init__.py": backend / "__init__.py"}
    for root, base in [(backend / name, backend) for name in (*_PURE, *_HOST)] + [(kernels, kernels)]:
        for path in [root] if root.is_file() else root.rglob("*.py"):
            files[f"{base.name}/{path.relative_to(base).as_posix()}"] = path
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name].read_bytes())
    data = buffer.getvalue()
    return Payload(data, hashlib.sha256(data).hexdigest())


async def deliver(link: Link, payload: Payload, workspace: str, python: str) -> None:
    """Bring the payload to its directory under ``workspace``: upload, check the hash there, unpack beside, rename.

    Raises LinkLost, FindingError (`payload_refused`, `remote_write_failed`).
    """
    target = payload.directory(workspace)
    archive = f"{workspace}/.eagle3/payload/.{payload.sha256[:12]}.{secrets.token_hex(4)}.zip"
    await link.put(payload.data, archive)
    done = await link.run(shell('exec "$@"', python, "-", archive, payload.sha256, target), _UNPACK.encode(), 120.0)
    if done.exit_status != 0:
        raise FindingError(
            error(
                "payload_refused",
                f"The host could not unpack the payload: {done.complaint()}",
                path=target,
                fix="Make room in the workspace, or check its file system.",
            )
        )
