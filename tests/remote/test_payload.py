from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.remote import payload
from eagle3_backend.remote.payload import Payload


def test_the_same_files_make_the_same_bytes():
    first = payload.build()
    payload.build.cache_clear()
    assert payload.build() == first


def test_it_holds_what_hosts_run_and_nothing_of_the_laptop():
    names = zipfile.ZipFile(io.BytesIO(payload.build().data)).namelist()
    assert names == sorted(names)
    assert {"eagle3_backend/findings.py", "eagle3_backend/agent/gateway.py", "eagle3_kernels/__init__.py"} <= set(names)
    rooms = {"remote", "runs", "serving", "control", "profile.py"}
    assert not {name.split("/")[1] for name in names if name.startswith("eagle3_backend/")} & rooms
    assert all(name.endswith(".py") for name in names)


def test_the_agent_starts_from_the_unpacked_payload_alone(tmp_path):
    zipfile.ZipFile(io.BytesIO(payload.build().data)).extractall(tmp_path)
    code = "import eagle3_backend.agent.gateway as g, eagle3_backend as e; print(e.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))


async def test_a_damaged_payload_is_refused_on_the_host(embedded, tmp_path):
    link = await embedded.connect()
    broken = Payload(b"PK", "ab" * 32)
    with pytest.raises(FindingError) as caught:
        await payload.deliver(link, broken, str(tmp_path), sys.executable)
    assert caught.value.findings[0].code == "payload_refused"
    assert not os.path.exists(broken.directory(str(tmp_path)))
    await link.close()


async def test_two_deliveries_at_once_leave_one_whole_payload(embedded, tmp_path):
    import asyncio

    link = await embedded.connect()
    package = payload.build()
    await asyncio.gather(*(payload.deliver(link, package, str(tmp_path), sys.executable) for _ in range(2)))
    folder = tmp_path / ".eagle3" / "payload"
    assert [entry.name for entry in folder.iterdir()] == [package.sha256[:12]]
    assert (folder / package.sha256[:12] / "eagle3_backend" / "findings.py").is_file()
    await link.close()
