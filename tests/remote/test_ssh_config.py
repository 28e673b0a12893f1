from __future__ import annotations

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.profile import Host
from eagle3_backend.remote import ssh_config
from eagle3_backend.remote.ssh_config import SshFiles


@pytest.fixture
def files(tmp_path):
    def write(text):
        path = tmp_path / "config"
        path.write_text(text)
        return SshFiles(config=path)

    return write


def addresses(host, files):
    return [hop.address for hop in ssh_config.chain(host, files)]


def test_the_configuration_completes_the_profile(files):
    found = addresses(Host(address="box"), files("Host box\n HostName 10.0.0.5\n Port 2200\n User ada\n"))
    assert found == ["ada@10.0.0.5:2200"]


def test_the_profile_wins_over_the_configuration(files):
    host = Host(address="box", user="eve", port=22)
    assert addresses(host, files("Host box\n HostName h\n Port 2200\n User ada\n")) == ["eve@h:22"]


def test_jumps_of_the_configuration_are_followed_outermost_first(files):
    text = "Host box\n User u\n ProxyJump inner\nHost inner\n User i\n ProxyJump o@outer:2222\n"
    assert addresses(Host(address="box"), files(text)) == ["o@outer:2222", "i@inner:22", "u@box:22"]


def test_of_several_named_jumps_the_last_stands_next_to_the_host(files):
    text = "Host *\n User u\nHost b\n ProxyJump elsewhere\n"
    assert addresses(Host(address="c", jump="a,b"), files(text)) == ["u@a:22", "u@b:22", "u@c:22"]


def test_jump_none_in_the_configuration_is_no_jump(files):
    assert len(addresses(Host(address="box"), files("Host box\n ProxyJump none\n"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Host *\n ProxyJump bastion\n",
        "Host box\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n",
        "Host box\n ProxyJump a\nHost a\n HostName box\n",
    ],
)
def test_a_loop_of_jumps_is_a_finding_before_any_packet(files, text):
    with pytest.raises(FindingError) as caught:
        ssh_config.chain(Host(address="box"), files(text))
    assert caught.value.findings[0].code == "ssh_proxyjump_loop"


def test_a_missing_key_file_is_a_finding(files, tmp_path):
    with pytest.raises(FindingError) as caught:
        ssh_config.chain(Host(address="box", identity=str(tmp_path / "none")), files(""))
    assert caught.value.findings[0].code == "ssh_identity_unreadable"


def test_a_configuration_that_cannot_be_read_is_a_finding(files):
    with pytest.raises(FindingError) as caught:
        ssh_config.chain(Host(address="box"), files("Port many\n"))
    assert caught.value.findings[0].code == "ssh_config_invalid"


def test_known_hosts_of_none_in_the_configuration_does_not_switch_checking_off(files):
    hop = ssh_config.chain(Host(address="box"), files("UserKnownHostsFile none\n"))[0]
    assert [path.name for path in hop.known_hosts] == ["known_hosts"]


def test_names_leave_patterns_out(files):
    found = ssh_config.names(files("Host a b*\nhost=c\nMatch user x\nHost !d e # note\n"))
    assert found == ("a", "c", "e")
