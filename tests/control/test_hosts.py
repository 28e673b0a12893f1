"""What is known of hosts before any campaign is open."""

from __future__ import annotations

from eagle3_backend.control import hosts
from eagle3_backend.remote.ssh_config import SshFiles


def test_names_of_the_ssh_configuration_are_candidates_until_they_were_used(tmp_path):
    config = tmp_path / "config"
    config.write_text("Host box spare *.example\n")
    (tmp_path / hosts.FILE).write_text('[hosts.box]\naddress = "box"\nworkspaces = ["/data"]\n')
    assert hosts.listed(tmp_path, SshFiles(config=config)) == {
        "hosts": [{"name": "box", "address": "box", "workspaces": ["/data"]}],
        "candidates": ["spare"],
    }


def test_without_any_configuration_nothing_is_listed(tmp_path):
    assert hosts.listed(tmp_path, SshFiles(config=tmp_path / "absent")) == {"hosts": [], "candidates": []}
