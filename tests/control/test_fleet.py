"""Other known hosts are looked at beside the one that is worked on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from eagle3_backend.control import hosts
from eagle3_backend.control.commands import Hosts
from eagle3_backend.states import LinkState


def test_known_hosts_are_watched_when_asked_for_and_one_out_of_reach_stops_no_other(campaign, wait_until) -> None:
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    other = campaign.root / "other"
    config = campaign.root / "config"
    config.mkdir()
    (config / hosts.FILE).write_text(
        f'[hosts.box]\ntransport = ["env", "{path}"]\nworkspaces = ["{other}"]\n'
        f'[hosts.gone]\ntransport = ["false"]\nworkspaces = ["{other}"]\n'
        '[hosts.torn]\nport = "many"\n'
    )
    control = campaign.control()
    assert control.snapshot().others == ()
    assert {entry["name"] for entry in campaign.ask(control, Hosts(watch=True))["hosts"]} >= {"box", "gone", "torn"}

    def both(snapshot):
        found = {view.name: view for view in snapshot.others}
        return found["box"].machine.cpu_count and found["gone"].problem is not None

    snapshot = wait_until(control, both)
    box, gone = snapshot.others
    assert (box.name, box.link, gone.name, gone.machine.cpu_count) == ("box", LinkState.LIVE, "gone", None)
    assert gone.link is not LinkState.LIVE and (other / ".eagle3" / "workspace.json").exists()
    campaign.ask(control, Hosts(watch=True))
    assert [view.name for view in control.snapshot().others] == ["box", "gone"]
    assert snapshot.host.link is LinkState.LIVE
