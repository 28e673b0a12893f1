"""The link against a real OpenSSH server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import shutil

import asyncssh
import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.remote import hostkeys, login, ssh_config
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.states import LinkState

pytestmark = pytest.mark.usefixtures("standin", "quick_retry")


def code_of(caught):
    return caught.value.findings[0].code


async def follow_to(session, path, stored, size):
    """A follower as the panel's: stores bytes at their offset and goes on there after every cut."""
    while len(stored) < size:
        try:
            async with contextlib.aclosing(session.subscribe("follow", path=str(path), offset=len(stored))) as pushes:
                async for push in pushes:
                    assert push["offset"] == len(stored)
                    stored += base64.b64decode(push["data"])
                    if len(stored) >= size:
                        return
        except LinkLost:
            await asyncio.sleep(0.02)


async def test_a_session_works_over_openssh_and_prefers_aes(make_sshd, open_session):
    server = make_sshd()
    session = open_session(server.host(), files=server.files)
    await session.connect()
    assert await session.request("echo", value="x") == {"value": "x"}
    assert session._link._connection.get_extra_info("send_cipher") == "aes128-gcm@openssh.com"


async def test_an_unknown_key_asks_and_leaves_known_hosts_alone(make_sshd, open_session):
    server = make_sshd()
    server.known_hosts.write_text("")
    session = open_session(server.host(), files=server.files)
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert code_of(caught) == "ssh_host_key_unknown"
    assert session.state is LinkState.DENIED
    assert session.offered.fingerprint == server.host_key.get_fingerprint()
    assert server.known_hosts.read_text() == ""
    assert not (server.folder / "workspace").exists()


@pytest.mark.parametrize("save", [False, True])
async def test_an_accepted_key_connects_and_is_saved_only_when_asked(make_sshd, open_session, save):
    server = make_sshd()
    listed = server.known_hosts.read_text()
    server.known_hosts.write_text("")
    session = open_session(server.host(), files=server.files)
    with pytest.raises(FindingError):
        await session.connect()
    session.trust(save)
    await session.connect()
    assert session.state is LinkState.LIVE
    assert server.known_hosts.read_text() == (listed if save else "")


async def test_a_changed_key_stops_everything_until_it_is_rebound(make_sshd, open_session):
    server = make_sshd()
    old = server.host_key.get_fingerprint()
    server.kill()
    server.new_host_key()
    server.start()
    session = open_session(server.host(), files=server.files)
    with pytest.raises(FindingError) as caught:
        await session.connect()
    finding = caught.value.findings[0]
    assert finding.code == "ssh_host_key_changed"
    assert (finding.expected, finding.actual) == (old, server.host_key.get_fingerprint())
    assert session.state is LinkState.KEY_CHANGED
    session.trust(save=True)
    assert old in hostkeys.fingerprint(server.known_hosts.read_text().split(maxsplit=1)[1])
    await session.rebind()
    assert session.state is LinkState.LIVE


async def test_a_host_with_another_kind_of_key_than_the_listed_one_has_changed(make_sshd, open_session):
    server = make_sshd()
    rsa = asyncssh.generate_private_key("ssh-rsa", key_size=2048).export_public_key("openssh").decode().strip()
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {rsa}\n")
    session = open_session(server.host(), files=server.files)
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert code_of(caught) == "ssh_host_key_changed"


async def test_a_wrong_key_of_the_user_is_a_finding_that_stops_the_loop(make_sshd, open_session):
    server = make_sshd()
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(server.folder / "other")
    session = open_session(server.host(identity=str(server.folder / "other")), files=server.files)
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert code_of(caught) == "ssh_authentication_failed"
    assert (session.state, session.attempt) == (LinkState.DENIED, 0)


async def test_a_closed_port_is_unreachable_and_is_tried_again(make_sshd, open_session, until):
    server = make_sshd()
    server.kill()
    session = open_session(server.host(), files=server.files)
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert code_of(caught) == "host_unreachable"
    server.start()
    await until(lambda: session.state is LinkState.LIVE)


async def test_a_name_that_does_not_resolve_is_unknown(make_sshd, open_session):
    server = make_sshd()
    session = open_session(server.host(address="no-such-host.invalid"), files=server.files)
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert code_of(caught) == "host_unknown"


async def test_a_killed_sshd_costs_no_byte_of_a_followed_file(make_sshd, open_session, until):
    server = make_sshd()
    session = open_session(server.host(), files=server.files)
    await session.connect()
    path, stored = server.folder / "output.log", bytearray()
    path.write_bytes(b"")
    total, block = 1_500_000, bytes(range(256)) * 20
    follower = asyncio.create_task(follow_to(session, path, stored, total))
    with open(path, "ab", buffering=0) as log:  # noqa: ASYNC230
        for number in range(total // 5000):
            log.write(block[:5000])
            if number in (60, 180):
                await until(lambda seen=number * 4000: len(stored) > seen)
                server.kill()
                await until(lambda: session.state is LinkState.RECONNECTING)
                server.start()
            await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        await follower
    assert session.generation == 3
    assert hashlib.sha256(stored).digest() == hashlib.sha256(path.read_bytes()).digest()


async def test_four_tails_and_twelve_probes_share_one_channel(make_sshd, open_session):
    server = make_sshd("MaxSessions 2\nSubsystem sftp internal-sftp")
    session = open_session(server.host(), files=server.files)
    await session.connect()
    paths = [server.folder / f"{name}.log" for name in range(4)]
    for path in paths:
        path.write_bytes(b"line\n" * 1000)
    tails = [asyncio.create_task(follow_to(session, path, bytearray(), 5000)) for path in paths]
    answers = await asyncio.gather(*(session.request("echo", value=number) for number in range(12)))
    await asyncio.gather(*tails)
    assert [answer["value"] for answer in answers] == list(range(12))
    assert session.generation == 1


async def test_a_burst_over_the_servers_limit_waits_its_turn(make_sshd):
    server = make_sshd("MaxSessions 2\nSubsystem sftp internal-sftp")
    link = await login.connect(ssh_config.chain(server.host(), server.files))
    done = await asyncio.gather(
        *(link.run(f"echo {number}") for number in range(12)), link.put(b"data", str(server.folder / "put"))
    )
    assert [int(one.stdout) for one in done[:12]] == list(range(12))
    assert (server.folder / "put").read_bytes() == b"data"
    assert not link.closed.is_set()
    await link.close()


async def test_without_sessions_the_finding_names_the_setting(make_sshd, monkeypatch):
    monkeypatch.setattr("eagle3_backend.remote.ssh.OPEN_TRIES", 2)
    server = make_sshd("MaxSessions 0")
    link = await login.connect(ssh_config.chain(server.host(), server.files))
    with pytest.raises(FindingError) as caught:
        await link.run("true")
    assert code_of(caught) == "ssh_channel_refused"
    assert "MaxSessions" in caught.value.findings[0].fix
    await link.close()


@pytest.mark.parametrize("extra", ["", "Subsystem sftp /bin/false", "Subsystem sftp internal-sftp"])
async def test_files_arrive_with_and_without_sftp(make_sshd, tmp_path, extra):
    server = make_sshd(extra)
    link = await login.connect(ssh_config.chain(server.host(), server.files))
    data = bytes(range(256)) * 5000
    source = tmp_path / "source"
    source.write_bytes(data)
    for number, content in enumerate((data, source)):
        target = tmp_path / "a folder" / f"it's {number}"
        await link.put(content, str(target))
        assert target.read_bytes() == data
        assert target.stat().st_mode & 0o777 == 0o600
        assert [entry.name for entry in target.parent.glob("*.*")] == []
    await link.close()


@pytest.mark.parametrize("extra", ["", "Subsystem sftp internal-sftp"])
async def test_a_link_cut_within_a_file_is_lost(make_sshd, make_relay, extra):
    server = make_sshd(extra)
    relay = await make_relay(server.port)
    key = f"[127.0.0.1]:{relay.port} {server.public_key}\n"
    server.known_hosts.write_text(key)
    link = await login.connect(ssh_config.chain(server.host(port=relay.port), server.files))
    relay.delay = 0.02
    putting = asyncio.create_task(link.put(bytes(8 << 20), str(server.folder / "put")))
    await asyncio.sleep(0.5)
    await relay.cut()
    with pytest.raises(LinkLost):
        await putting
    assert not (server.folder / "put").exists()
    await link.close()


async def test_a_folder_that_refuses_writing_is_a_finding(make_sshd, tmp_path):
    (tmp_path / "file").write_text("")
    for extra in ("", "Subsystem sftp internal-sftp"):
        server = make_sshd(extra)
        link = await login.connect(ssh_config.chain(server.host(), server.files))
        with pytest.raises(FindingError) as caught:
            await link.put(b"x", str(tmp_path / "file" / "below"))
        assert code_of(caught) == "remote_write_failed"
        await link.close()


async def test_a_file_that_cannot_take_its_place_leaves_nothing_behind(make_sshd, tmp_path):
    (tmp_path / "folder" / "taken" / "by").mkdir(parents=True)
    server = make_sshd()
    link = await login.connect(ssh_config.chain(server.host(), server.files))
    with pytest.raises(FindingError) as caught:
        await link.put(b"x", str(tmp_path / "folder" / "taken"))
    assert code_of(caught) == "remote_write_failed"
    assert [entry.name for entry in (tmp_path / "folder").iterdir()] == ["taken"]
    await link.close()


async def test_a_jump_host_is_opened_under_the_same_policy(make_sshd, open_session, until):
    jump, server = make_sshd(), make_sshd()
    shutil.copy(jump.folder / "authorized", server.folder / "authorized")
    both = server.known_hosts.read_text() + jump.known_hosts.read_text()
    config = (
        f"Host jump\n HostName 127.0.0.1\n Port {jump.port}\n IdentityFile {jump.folder}/id\n"
        f"Host inner\n HostName 127.0.0.1\n Port {server.port}\n IdentityFile {jump.folder}/id\n ProxyJump jump\n"
        "Host *\n IdentityAgent none\n IdentitiesOnly yes\n"
    )
    (server.folder / "config").write_text(config)
    host = server.host(address="inner", port=0, identity="")
    session = open_session(host, files=server.files)
    with pytest.raises(FindingError) as caught:
        await session.connect()
    assert code_of(caught) == "ssh_host_key_unknown"
    assert session.offered.port == jump.port
    server.known_hosts.write_text(both)
    session.retry_now()
    await session.connect()
    assert await session.request("echo", value=1) == {"value": 1}
    jump.kill()
    await until(lambda: session.state is LinkState.RECONNECTING)
    jump.start()
    await until(lambda: session.state is LinkState.LIVE)


async def test_no_secret_and_no_payload_is_in_any_argument_list(make_sshd, open_session):
    import psutil

    server = make_sshd()
    session = open_session(server.host(), files=server.files)
    await session.connect()
    await session.request("echo", value={"HF_TOKEN": "hf_secret_value"})
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert any("eagle3_backend.agent.gateway" in line for line in lines)
    assert not any("hf_secret_value" in line for line in lines)
