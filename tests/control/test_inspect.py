"""What control tells of model directories on hosts."""

from __future__ import annotations

import pytest

from eagle3_backend.control import hosts
from eagle3_backend.control.commands import Inspect
from eagle3_backend.drafter.inspection import Inspection
from eagle3_backend.drafter.tensorfile import header_bytes
from eagle3_backend.findings import FindingError


@pytest.fixture
def drafter(campaign):
    folder = campaign.workspace / "draft"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "model.safetensors").write_bytes(header_bytes({"t2d": ("bool", (3,))}, {}) + b"\1\0\1")
    return folder


@pytest.fixture
def refusal(campaign):
    def of(control, command):
        with pytest.raises(FindingError) as caught:
            campaign.ask(control, command)
        return caught.value.findings[0]

    return of


def test_the_open_hosts_directory_is_told_and_later_the_same_without_a_profile(campaign, drafter):
    told = Inspection.from_json(campaign.ask(campaign.control(), Inspect("draft")))
    assert (told.path, told.config, told.inventory.integers("t2d")) == (str(drafter), {"hidden_size": 8}, [1, 0, 1])
    again = campaign.ask(campaign.control(opened=False), Inspect(str(drafter), host="embedded"))
    assert Inspection.from_json(again) == told


def test_without_a_host_or_an_open_profile_nothing_is_asked(campaign, refusal):
    assert refusal(campaign.control(opened=False), Inspect("draft")).code == "campaign_not_open"


def test_a_host_that_nobody_has_worked_on_is_not_contacted(campaign, refusal):
    control = campaign.control(opened=False)
    assert refusal(control, Inspect("draft", host="elsewhere")).code == "host_unknown"


@pytest.mark.parametrize("written", ["", 'workspaces = []\naddress = "box"', 'workspaces = ["/w"]\nport = "many"'])
def test_a_torn_memory_of_a_host_is_a_finding(campaign, refusal, written):
    (campaign.root / "config").mkdir()
    (campaign.root / "config" / hosts.FILE).write_text(f"[hosts.box]\n{written}\n")
    assert refusal(campaign.control(opened=False), Inspect("draft", host="box")).code == "hosts_unreadable"
