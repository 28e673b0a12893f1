"""The session over the embedded host, with a gateway of a few lines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
from pathlib import Path

import pytest

from eagle3_backend.findings import FindingError, error
from eagle3_backend.profile import Environment, Host
from eagle3_backend.remote.command import CommandLink
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.remote.session import HostSession
from eagle3_backend.states import LinkState

pytestmark = pytest.mark.usefixtures("standin", "quick_retry")


async def test_a_session_greets_and_answers(open_session):
    session = open_session()
    await session.connect()
    assert session.state is LinkState.LIVE
    assert session.generation == 1
    assert await session.request("echo", value="é\ud800\n") == {"value": "é\ud800\n"}
    assert session.latency > 0


async def test_the_payload_is_unpacked_once_under_its_hash(open_session, standin, tmp_path):
    for _ in range(2):
        session = open_session()
        await session.connect()
        await session.close()
    folder = tmp_path / "workspace" / ".eagle3" / "payload"
    assert [entry.name for entry in folder.iterdir()] == [standin.sha256[:12]]
    assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_refusal_of_the_host_arrives_as_its_finding(open_session):
    session = open_session()
    await session.connect()
    with pytest.raises(FindingError) as caught:
        await session.request("no such operation")
    assert caught.value.findings[0].code == "refused"


async def test_a_killed_gateway_is_followed_by_a_new_one(open_session, until):
    session = open_session()
    await session.connect()
    waiting = asyncio.create_task(session.request("silent"))
    await asyncio.sleep(0.05)
    os.kill(session.hello["pid"], signal.SIGKILL)
    with pytest.raises(LinkLost):
        await waiting
    await until(lambda: session.generation == 2)
    assert await session.request("echo", value=1) == {"value": 1}


async def test_a_request_without_a_link_says_so(open_session):
    session = open_session()
    with pytest.raises(LinkLost):
        await session.request("ping")


async def test_a_reader_that_falls_behind_loses_its_subscription_and_nobody_else_waits(
    open_session, monkeypatch, until
):
    monkeypatch.setattr("eagle3_backend.remote.gateway.BACKLOG", 100_000)
    session = open_session()
    await session.connect()
    received = []

    async def slow():
        async with contextlib.aclosing(session.subscribe("flood", count=200, size=10_000)) as pushes:
            async for push in pushes:
                received.append(push["number"])
                await asyncio.sleep(0.05)

    reader = asyncio.create_task(slow())
    await until(lambda: bool(received))
    assert await session.request("echo", value=1) == {"value": 1}
    with pytest.raises(LinkLost):
        await reader
    assert received == list(range(len(received)))


async def test_an_answer_of_nearly_a_frame_arrives_whole_and_a_longer_one_ends_the_link(open_session):
    session = open_session()
    await session.connect()
    assert len((await session.request("blob", size=1_000_000))["data"]) == 1_000_000
    with pytest.raises(LinkLost):
        await session.request("blob", size=3_000_000)


async def test_a_host_without_the_named_interpreter_gets_a_finding(open_session, tmp_path):
    host = Host(transport=["env"], workspace=str(tmp_path / "w"))
    session = open_session(host, environments={"host": Environment(python="/no/such/python")})
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert caught.value.findings[0].code == "host_python_missing"
    assert session.state is LinkState.OFFLINE


async def test_a_workspace_that_cannot_be_made_gets_a_finding(open_session, tmp_path):
    (tmp_path / "file").write_text("")
    session = open_session(Host(address="embedded", workspace=str(tmp_path / "file" / "w")))
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert caught.value.findings[0].code == "workspace_unwritable"


async def test_an_upload_lies_under_its_hash(open_session, tmp_path):
    source = tmp_path / "prompts.jsonl"
    source.write_bytes(b"{}\n\xff")
    session = open_session()
    await session.connect()
    path = await session.upload(source, "ab" * 32)
    assert path == f"{session.workspace}/.eagle3/uploads/{'ab' * 32}/prompts.jsonl"
    assert Path(path).read_bytes() == b"{}\n\xff"


async def test_a_tunnel_keeps_its_local_port_over_a_reconnect(open_session, until):
    async def greet(reader, writer):
        writer.write(b"engine")
        writer.close()

    engine = await asyncio.start_server(greet, "127.0.0.1", 0)
    session = open_session()
    await session.connect()
    port = await session.tunnel(engine.sockets[0].getsockname()[1])
    os.kill(session.hello["pid"], signal.SIGKILL)
    await until(lambda: session.generation == 2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b"engine"
    writer.close()
    engine.close()


async def test_a_transport_command_does_all_but_tunnels(open_session, tmp_path):
    session = open_session(Host(transport=["env", "EAGLE3=1"], workspace=str(tmp_path / "w")))
    await session.connect()
    log = tmp_path / "output.log"
    log.write_bytes(b"one\n\xff\n")
    async with contextlib.aclosing(session.subscribe("follow", path=str(log), offset=0)) as pushes:
        async for push in pushes:
            assert base64.b64decode(push["data"]) == b"one\n\xff\n"
            break
    with pytest.raises(FindingError) as caught:
        await session.tunnel(1)
    assert caught.value.findings[0].code == "transport_no_tunnel"


async def test_a_transport_command_that_is_not_there_gets_a_finding(open_session, tmp_path):
    session = open_session(Host(transport=["/no/such/docker"], workspace=str(tmp_path / "w")))
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert caught.value.findings[0].code == "transport_failed"


async def test_a_file_that_does_not_fit_leaves_nothing_behind(tmp_path):
    link = CommandLink(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh"])
    with pytest.raises(FindingError) as caught:
        await link.put(bytes(1 << 20), str(tmp_path / "folder" / "file"))
    assert caught.value.findings[0].code == "remote_write_failed"
    assert list((tmp_path / "folder").iterdir()) == []


async def test_what_a_login_shell_prints_is_passed_over(open_session, tmp_path):
    noisy = ["sh", "-c", 'echo "welcome {}"; exec "$@"', "sh"]
    session = open_session(Host(transport=noisy, workspace=str(tmp_path / "w")))
    await session.connect()
    assert await session.request("echo", value=1) == {"value": 1}


async def test_a_fault_nobody_foresaw_ends_the_waiting_with_a_finding():
    async def broken():
        raise PermissionError("~/.ssh/config is not yours")

    session = HostSession(Host(address="box"), {}, connect=broken)
    with pytest.raises(FindingError) as caught:
        await asyncio.wait_for(session.connect(), 30)
    (finding,) = caught.value.findings
    assert finding.code == "link_failed" and "is not yours" in finding.message
    await session.close()


async def test_tries_of_a_host_that_was_never_reached_do_not_hide_how_long_it_is_away(until):
    tries, seen = [], []

    async def away():
        tries.append(session.state)
        raise FindingError(error("host_unreachable", "Nobody answers."))

    session = HostSession(
        Host(address="box"), {}, connect=away, on_change=lambda: seen.append((session.state, session.since))
    )
    with pytest.raises(FindingError):
        await session.connect()
    await until(lambda: len(tries) > 3)
    assert seen[0][0] is LinkState.CONNECTING
    assert len({entry for entry in seen if entry[0] is LinkState.RECONNECTING}) == 1
    assert tries[1:] == [LinkState.RECONNECTING] * (len(tries) - 1)
    await session.close()
