"""Several panels see the same alert: one calls the person, and none that dies takes the call with it."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from eagle3_backend.control import claims, watching
from eagle3_backend.control.alerts import CALM_SECONDS, Alert, Alerts, Notices
from eagle3_backend.control.claims import LEASE_SECONDS, Claims
from eagle3_backend.control.commands import Await, Start
from eagle3_backend.control.snapshot import ALERT, HostView, Machine, Snapshot
from eagle3_backend.runs.store import Store
from eagle3_backend.states import LinkState

END = Alert("done", "train", "done", "ok", "c-train-1/1/done")
DISK = Alert("disk", "box", "the disk is nearly full", name="disk")


@pytest.fixture
def clock(monkeypatch):
    """The wall time of claims, moved by hand."""

    class Clock:
        now = 1_764_424_931.0

    monkeypatch.setattr(claims.time, "time", lambda: Clock.now)
    return Clock


@pytest.fixture
def panels(tmp_path):
    """Two panels of one laptop on the same campaign."""
    stores = [Store(tmp_path / "runs.sqlite") for _ in range(2)]
    yield [Claims(store, "box /w", f"panel {number}") for number, store in enumerate(stores)]
    for store in stores:
        store.close()


@pytest.mark.parametrize("alert", [END, DISK])
def test_who_sees_an_alert_first_calls_and_nobody_else_does(panels, clock, alert):
    first, second = panels
    assert [first.claim(alert, clock.now), second.claim(alert, clock.now + 1)] == [True, False]
    first.told(alert.name)
    clock.now += 2 * LEASE_SECONDS
    assert second.keep({}) == []


def test_an_end_that_is_seen_much_later_does_not_call_again(panels, clock):
    first, second = panels
    assert first.claim(END, clock.now)
    first.told(END.name)
    assert not second.claim(END, clock.now + 50 * CALM_SECONDS)


def test_a_trouble_that_goes_on_does_not_call_from_a_panel_that_is_opened_later(panels, clock):
    first, second = panels
    assert first.claim(DISK, clock.now)
    first.told(DISK.name)
    for _ in range(100):
        clock.now += 5.0
        assert first.keep({DISK.name: 0.5}) == []
    assert not second.claim(DISK, clock.now)


def test_a_trouble_that_was_away_for_a_while_calls_once_more(panels, clock):
    first, second = panels
    assert first.claim(DISK, clock.now)
    first.told(DISK.name)
    clock.now += CALM_SECONDS + 1
    assert [second.claim(DISK, clock.now), first.claim(DISK, clock.now + 1)] == [True, False]


def test_what_is_being_told_stays_with_who_tells_it_as_long_as_that_one_lives(panels, clock):
    first, second = panels
    assert [first.claim(END, clock.now), second.claim(END, clock.now)] == [True, False]
    for _ in range(20):
        clock.now += 5.0
        assert (first.keep({}), second.keep({})) == ([], [])


def test_who_dies_before_the_call_is_followed_by_another_panel(panels, clock):
    first, second = panels
    at = clock.now
    assert [first.claim(END, at), second.claim(END, at + 1)] == [True, False]
    clock.now += LEASE_SECONDS - 1
    assert second.keep({}) == []
    clock.now += 2
    assert second.keep({}) == [(END, at + 1)]
    second.told(END.name)
    clock.now += 2 * LEASE_SECONDS
    assert second.keep({}) == []


def test_without_a_webhook_what_is_shown_is_told(panels, clock):
    first, second = panels
    assert [first.claim(END, clock.now), second.claim(END, clock.now)] == [True, False]
    first.tell_shown(clock.now + 0.1)
    first.tell_shown(clock.now + 5)
    clock.now += 2 * LEASE_SECONDS
    assert second.keep({}) == []


def test_a_store_that_cannot_be_used_keeps_nobody_from_calling(panels, clock):
    first, _ = panels
    first._store.close()
    assert first.claim(END, clock.now) and first.claim(END, clock.now)
    first.told(END.name)
    assert first.keep({DISK.name: 0.0}) == []


def test_who_waited_for_the_file_while_another_claimed_does_not_call(panels, clock):
    first, second = panels
    looked = clock.now
    assert first.claim(END, looked + 0.5)
    assert not second.claim(END, looked)


def test_a_clock_that_was_set_back_holds_no_call_up(panels, clock):
    first, second = panels
    assert first.claim(END, clock.now)
    clock.now -= 86400
    assert second.claim(END, clock.now)


def test_two_panels_see_an_alert_under_the_same_name():
    full = Snapshot(host=HostView("box", LinkState.LIVE, machine=Machine(disk_free=1, disk_total=1000)))
    (first,), (second,) = Alerts().observe(full, 5.0), Alerts().observe(replace(full, version=7), 900.0)
    assert first.name == second.name == "disk"


CONTEND = """
import sys, time
from pathlib import Path
from eagle3_backend.control.alerts import Alert
from eagle3_backend.control.claims import Claims
from eagle3_backend.runs.store import Store
claims = Claims(Store(Path(sys.argv[1])), "box /w", sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    if claims.claim(Alert("done", "train", "done", "ok", str(number)), time.time()):
        print(number)
"""


def test_of_two_processes_each_alert_calls_from_exactly_one(tmp_path):
    store = tmp_path / "runs.sqlite"
    Store(store).close()
    both = [
        subprocess.Popen(
            [sys.executable, "-c", CONTEND, str(store), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    claimed = [process.communicate(timeout=60)[0].split() for process in both]
    assert sorted(claimed[0] + claimed[1], key=int) == [str(number) for number in range(100)]


@pytest.fixture
def hook(monkeypatch):
    """What a webhook is told, by any panel of this process."""
    told = []

    def post(self, body, settled=lambda: None):
        told.append(body)
        settled()

    monkeypatch.setattr(watching.Webhook, "post", post)
    return told


def alerts_of(control):
    return [event for event in control.snapshot().events if event.kind == ALERT]


def test_of_two_open_panels_one_posts_and_rings_and_both_tell(campaign, wait_until, hook):
    notices = Notices("http://127.0.0.1:9/x")
    hold = campaign.hold("setup")
    both = [campaign.control(notices=notices) for _ in range(2)]
    campaign.ask(both[0], Start("setup"))
    for control in both:
        wait_until(control, lambda now: now.stage("setup").state.is_active)
    hold.unlink()
    for control in both:
        wait_until(control, lambda now: any(event.kind == ALERT for event in now.events))
    events = [event for control in both for event in alerts_of(control)]
    assert len(events) == 2 and sorted("elsewhere" in event.data for event in events) == [False, True]
    assert [body["source"] for body in hook] == ["setup"]
    # The store that they share has it once, for whoever opens a panel later.
    assert len(alerts_of(campaign.control())) == 1


CLAIM_AND_WAIT = """
import sys, time
from pathlib import Path
from eagle3_backend.control.alerts import Alert
from eagle3_backend.control.claims import Claims
from eagle3_backend.runs.store import Store
claims = Claims(Store(Path(sys.argv[1])), sys.argv[2], "one that dies")
print(claims.claim(Alert("done", "setup", "done", "ok", sys.argv[3]), time.time()), flush=True)
time.sleep(600)
"""


def test_what_a_killed_panel_was_to_tell_is_told_by_the_one_that_lives(campaign, wait_until, hook, monkeypatch):
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.2)
    hold = campaign.hold("setup")
    control = campaign.control(notices=Notices("http://127.0.0.1:9/x"))
    (run,) = campaign.ask(control, Start("setup")).runs
    place = f"{control.snapshot().host.name} {campaign.workspace}"
    argv = [sys.executable, "-c", CLAIM_AND_WAIT, str(campaign.root / "state" / "runs.sqlite"), place, f"{run}/1/done"]
    other = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    hold.unlink()
    assert campaign.ask(control, Await("setup")).reached
    wait_until(control, lambda now: any(event.kind == ALERT for event in now.events))
    assert hook == [] and alerts_of(control)[0].data["elsewhere"]
    other.kill()
    other.wait()
    before = time.time()
    monkeypatch.setattr(claims, "LEASE_SECONDS", 0.0)  # over at once, without the wait for it
    wait_until(control, lambda now: sum(event.kind == ALERT for event in now.events) == 2)
    assert "elsewhere" not in alerts_of(control)[1].data
    assert [(body["source"], body["at"] < before) for body in hook] == [("setup", True)]
