"""The facade itself: a thread that answers, coalesces and ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from eagle3_backend.control import Control
from eagle3_backend.control import desk as desk_room
from eagle3_backend.control.commands import Await, ReconnectNow, Status
from eagle3_backend.control.snapshot import Event, Snapshot
from eagle3_backend.findings import FindingError, error


class FakeDesk:
    """Answers without any host."""

    newest: FakeDesk

    def __init__(self, config_dir, state_dir, cache_dir, *, changed, tell, notices):
        self.changed = changed
        self.tell = tell
        self.pictures = 0
        self.closed = threading.Event()
        type(self).newest = self

    def picture(self, version):
        self.pictures += 1
        return Snapshot(version=version, campaign=f"picture {self.pictures}")

    async def handle(self, command):
        if isinstance(command, Status):
            for _ in range(1000):
                self.changed()
            return {"thread": threading.current_thread().name}
        if isinstance(command, Await):
            await asyncio.Event().wait()
        self.tell(Event(1.0, "host", "asked"))
        raise FindingError(error("refused", "no"))

    async def close(self):
        self.closed.set()


@pytest.fixture
def control(tmp_path, monkeypatch):
    monkeypatch.setattr(desk_room, "Desk", FakeDesk)
    control = Control(tmp_path / "config", tmp_path / "state", tmp_path / "cache")
    control.start()
    yield control
    control.close()


def test_work_happens_on_its_own_thread(control):
    assert control.submit(Status()).result(30) == {"thread": "control"}
    assert threading.current_thread().name != "control"


def test_a_thousand_changes_make_one_picture_which_whoever_caused_them_sees(control):
    control.submit(Status()).result(30)
    assert control.snapshot().campaign == "picture 1"
    control.submit(Status()).result(30)
    assert control.snapshot().version == 2


def test_a_refusal_comes_through_the_future(control):
    with pytest.raises(FindingError) as problem:
        control.submit(ReconnectNow()).result(30)
    assert problem.value.findings[0].code == "refused"


def test_listeners_hear_events_until_they_leave(control):
    heard = []
    leave = control.subscribe(heard.append)
    with pytest.raises(FindingError):
        control.submit(ReconnectNow()).result(30)
    leave()
    with pytest.raises(FindingError):
        control.submit(ReconnectNow()).result(30)
    assert [event.text for event in heard] == ["asked"]


def test_closing_ends_what_waits_and_lets_the_hosts_go(control):
    waiting = control.submit(Await("bench"))
    control.submit(Status()).result(30)
    control.close()
    with pytest.raises(concurrent.futures.CancelledError):
        waiting.result(30)
    assert FakeDesk.newest.closed.is_set()


def test_a_desk_that_cannot_be_made_fails_every_command(tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise OSError("no room")

    monkeypatch.setattr(desk_room, "Desk", broken)
    control = Control(tmp_path, tmp_path, tmp_path)
    control.start()
    with pytest.raises(OSError, match="no room"):
        control.submit(Status()).result(30)
    control.close()


def test_whoever_draws_hears_of_each_new_picture_and_finds_it(control):
    seen: list[int] = []
    told = threading.Event()

    def changed() -> None:
        seen.append(control.snapshot().version)
        if seen[-1]:
            told.set()

    control.on_picture(changed)
    assert seen[0] == 0
    control.submit(Status()).result(30)
    assert told.wait(30) and seen == sorted(set(seen))
