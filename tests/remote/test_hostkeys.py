from __future__ import annotations

import asyncssh
import pytest

from eagle3_backend.remote import hostkeys
from eagle3_backend.remote.hostkeys import OfferedKey, judge


def public(key):
    return key.export_public_key("openssh").decode().strip()


OLD, NEW, RSA = (public(asyncssh.generate_private_key(kind)) for kind in ("ssh-ed25519", "ssh-ed25519", "ssh-rsa"))


def test_the_listed_key_is_known():
    assert judge(f"gpu-a {OLD}\n", "gpu-a", 22, OLD) is None


def test_another_key_than_the_listed_one_is_an_error_with_both_fingerprints():
    finding = judge(f"gpu-a {OLD}\n", "gpu-a", 22, NEW, "box")
    assert finding.fix.endswith("eagle3-tui hosts rebind box")  # as the profile calls it, whatever its keys are under
    assert finding.code == "ssh_host_key_changed"
    assert (finding.expected, finding.actual) == (hostkeys.fingerprint(OLD), hostkeys.fingerprint(NEW))
    assert finding.expected in finding.message and finding.actual in finding.message


def test_an_unlisted_host_is_a_question():
    finding = judge(f"gpu-a {OLD}\n", "gpu-b", 22, NEW)
    assert (finding.code, finding.severity.value, finding.path) == ("ssh_host_key_unknown", "warning", "gpu-b")


def test_a_port_of_its_own_has_a_key_of_its_own():
    text = f"gpu-a {OLD}\n[gpu-a]:2222 {NEW}\n"
    assert judge(text, "gpu-a", 2222, NEW) is None
    assert judge(text, "gpu-a", 2222, OLD).code == "ssh_host_key_changed"


def test_the_key_of_the_plain_name_is_known_on_an_unlisted_port_but_another_one_is_only_unknown():
    assert judge(f"gpu-a {OLD}\n", "gpu-a", 2200, OLD) is None
    assert judge(f"gpu-a {OLD}\n", "gpu-a", 2200, NEW).code == "ssh_host_key_unknown"


def test_a_changed_key_is_told_with_the_listed_key_of_its_own_kind():
    finding = judge(f"gpu-a {RSA}\ngpu-a {OLD}\n", "gpu-a", 22, NEW)
    assert finding.expected == hostkeys.fingerprint(OLD)


def test_a_revoked_key_is_refused_even_when_listed():
    assert judge(f"gpu-a {OLD}\n@revoked * {OLD}\n", "gpu-a", 22, OLD).code == "ssh_host_key_revoked"


def test_lines_that_cannot_be_read_are_passed_over():
    assert judge(f"garbage\n@what gpu-a {OLD}\n|1|bad {OLD}\ngpu-a {OLD}\n", "gpu-a", 22, OLD) is None


def test_a_saved_key_starts_a_line_of_its_own(tmp_path):
    path = tmp_path / "ssh" / "known_hosts"
    hostkeys.append(path, OfferedKey("gpu-a", 22, OLD).line)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    hostkeys.append(path, OfferedKey("gpu-b", 2222, NEW).line)
    assert path.read_text() == f"gpu-a {OLD}\n[gpu-b]:2222 {NEW}\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_in_place_of_known_hosts_is_not_written_through(tmp_path):
    (tmp_path / "victim").write_text("")
    (tmp_path / "known_hosts").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        hostkeys.append(tmp_path / "known_hosts", "line")
    assert (tmp_path / "victim").read_text() == ""


def test_rebinding_replaces_this_host_and_nothing_else(tmp_path):
    path = tmp_path / "known_hosts"
    path.write_text(f"# mine\ngpu-a,10.0.0.1 {OLD}\ngpu-a {RSA}\ngpu-b {OLD}\n*.example {OLD}\nnot a line\n")
    hostkeys.rebind(path, OfferedKey("gpu-a", 22, NEW))
    assert path.read_text() == f"# mine\n10.0.0.1 {OLD}\ngpu-b {OLD}\n*.example {OLD}\nnot a line\ngpu-a {NEW}\n"
    assert judge(path.read_text(), "gpu-a", 22, NEW) is None


def test_rebinding_finds_a_hashed_name(tmp_path):
    path = tmp_path / "known_hosts"
    # Salt and HMAC-SHA1 of "gpu-a", as HashKnownHosts writes them.
    import base64
    import hashlib
    import hmac

    salt = b"0" * 20
    hashed = base64.b64encode(hmac.new(salt, b"gpu-a", hashlib.sha1).digest()).decode()
    path.write_text(f"|1|{base64.b64encode(salt).decode()}|{hashed} {OLD}\n")
    assert judge(path.read_text(), "gpu-a", 22, OLD) is None
    hostkeys.rebind(path, OfferedKey("gpu-a", 22, NEW))
    assert path.read_text() == f"gpu-a {NEW}\n"
