from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import os
import signal
from pathlib import Path

import asyncssh
import psutil
import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.remote import login
from eagle3_backend.remote.hostkeys import OfferedKey
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.states import LinkState


async def test_output_errors_and_status_come_back_byte_for_byte(embedded):
    link = await embedded.connect()
    done = await link.run("cat; printf '\\377err' >&2; exit 3", b"\xff\x00in")
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"\xff\x00in", b"\xfferr")
    await link.close()


async def test_ten_megabytes_without_a_line_end_come_back_whole(embedded):
    link = await embedded.connect()
    assert (await link.run("head -c 10000000 /dev/zero")).stdout == bytes(10_000_000)
    await link.close()


async def test_another_key_on_the_loopback_is_denied(embedded):
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    hop = dataclasses.replace(embedded.hop, options={**embedded.hop.options, "client_keys": [stranger]})
    with pytest.raises(FindingError) as caught:
        await login.connect((hop,), accepted=(embedded.offered,))
    assert caught.value.findings[0].code == "ssh_authentication_failed"
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(
            "127.0.0.1", embedded.port, known_hosts=None, config=None, client_keys=[stranger], agent_path=None
        )


async def test_an_unlisted_host_key_is_refused(embedded):
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key("openssh").decode().strip()
    with pytest.raises(login.HostKeyRefused) as caught:
        await login.connect((embedded.hop,), accepted=(OfferedKey("127.0.0.1", embedded.port, other),))
    assert caught.value.findings[0].code == "ssh_host_key_changed"


async def test_forwarding_reaches_loopback_and_nothing_else(embedded):
    link = await embedded.connect()
    with pytest.raises(asyncssh.ChannelOpenError):
        await link._connection.open_connection("192.0.2.1", 80)
    await link.close()


async def test_a_command_that_does_not_end_in_time_is_a_timeout_and_the_link_stays(embedded):
    link = await embedded.connect()
    with pytest.raises(TimeoutError):
        await link.run("sleep 60", timeout=0.1)
    assert (await link.run("echo on")).stdout == b"on\n"
    await link.close()


async def test_a_writer_without_a_reader_ends_and_a_detached_process_lives_on(embedded, tmp_path, until):
    link = await embedded.connect()
    stream = await link.open(f"echo $$ > {tmp_path}/writer; yes")
    await stream.read(10)
    await link.run(f"setsid sh -c 'echo $$ > {tmp_path}/detached; exec sleep 60' </dev/null >/dev/null 2>&1 &")
    await until(lambda: (tmp_path / "detached").exists() and (tmp_path / "detached").read_text().endswith("\n"))
    writer, detached = (int((tmp_path / name).read_text()) for name in ("writer", "detached"))
    await link.close()
    await embedded.close()
    await until(lambda: not psutil.pid_exists(writer))
    assert psutil.Process(detached).is_running()
    os.kill(detached, signal.SIGKILL)


async def test_at_most_three_of_our_channels_are_open_at_once(embedded, tmp_path):
    link = await embedded.connect()
    script = f"mkdir {tmp_path}/$1; ls {tmp_path} | wc -l; sleep 0.05; rmdir {tmp_path}/$1"
    done = await asyncio.gather(*(link.run(f"set -- {number}; {script}") for number in range(9)))
    assert max(int(one.stdout) for one in done) <= 3
    await link.close()


class TestBehindARelay:
    """The session through a relay that misbehaves, with the gateway of a few lines."""

    @pytest.fixture(autouse=True)
    def quick(self, standin, quick_retry, monkeypatch):
        monkeypatch.setattr("eagle3_backend.remote.gateway.PING_SECONDS", 0.2)
        monkeypatch.setattr("eagle3_backend.remote.gateway.SILENCE_SECONDS", 0.8)
        monkeypatch.setattr("eagle3_backend.remote.session.PING_SECONDS", 0.2)

    @pytest.fixture
    def through(self, embedded, make_relay, open_session):
        async def make():
            relay = await make_relay(embedded.port)
            hop = dataclasses.replace(embedded.hop, options={**embedded.hop.options, "port": relay.port})
            states: list[LinkState] = []
            session = open_session(
                connect=lambda: login.connect((hop,), (embedded.offered,)),
                on_change=lambda: states.append(session.state),
            )
            await session.connect()
            return relay, session, states

        return make

    async def test_a_black_hole_is_noticed_and_the_file_goes_on_at_the_stored_byte(self, through, tmp_path, until):
        relay, session, states = await through()
        path, stored, offsets = tmp_path / "output.log", bytearray(), []
        path.write_bytes(b"a" * 31_000)
        task = asyncio.create_task(follow(session, path, stored, offsets))
        await until(lambda: len(stored) == 31_000)
        relay.black_hole = True
        path.write_bytes(b"a" * 52_000)
        await until(lambda: session.state is LinkState.RECONNECTING)
        assert LinkState.STALE in states
        assert session.problem.code == "ssh_connection_lost"
        relay.black_hole = False
        await until(lambda: len(stored) == 52_000)
        assert offsets == [0, 31_000]
        assert stored == path.read_bytes()
        task.cancel()

    async def test_cuts_inside_frames_cost_no_byte(self, through, tmp_path, until):
        relay, session, _ = await through()
        path, stored = tmp_path / "output.log", bytearray()
        path.write_bytes(b"")
        task = asyncio.create_task(follow(session, path, stored, []))
        for cut in (1, 17, 40, 1_000, 20_000, 50_001):
            await until(lambda: session.state is LinkState.LIVE)
            relay.cut_after = cut
            with path.open("ab") as log:
                log.write(bytes([cut % 251]) * 40_000)
            generation = session.generation
            await until(lambda seen=generation: session.generation > seen)
        await until(lambda: len(stored) == 240_000)
        assert stored == path.read_bytes()
        task.cancel()

    async def test_a_slow_link_answers_in_order_and_a_flood_keeps_its_order(self, through):
        relay, session, _ = await through()
        relay.delay = 0.005
        numbers = []
        async with contextlib.aclosing(session.subscribe("flood", count=6000, size=150)) as pushes:
            async for push in pushes:
                numbers.append(push["number"])
                if len(numbers) == 6000:
                    break
        assert numbers == list(range(6000))
        assert await session.request("echo", value=1) == {"value": 1}


async def follow(session, path: Path, stored: bytearray, offsets: list[int]) -> None:
    while True:
        try:
            offset = len(stored)
            async with contextlib.aclosing(session.subscribe("follow", path=str(path), offset=offset)) as pushes:
                async for push in pushes:
                    if push["offset"] == offset:
                        offsets.append(offset)
                    assert push["offset"] == len(stored)
                    stored += base64.b64decode(push["data"])
        except LinkLost:
            await asyncio.sleep(0.02)
