from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from eagle3_backend.control.commands import ReconnectNow
from eagle3_backend.control.snapshot import Snapshot
from eagle3_tui import places
from eagle3_tui.mock import SCENES, MockSource
from eagle3_tui.source import ControlSource


class Control:
    """Stands in for the real control: answers every command with its name."""

    def __init__(self) -> None:
        self.closed = False

    def submit(self, command: object) -> Future:
        outcome: Future = Future()
        outcome.set_result(type(command).__name__)
        return outcome

    def snapshot(self) -> Snapshot:
        return Snapshot(version=7)

    def on_picture(self, listener: Callable[[], None]) -> None:
        listener()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text('[host]\naddress = "embedded"\n[target]\nmodel = "demo:smollm2-135m"\n[stages.train]\nepochs = 2\n')
    return file


def test_commands_given_before_control_is_there_are_answered_by_it(profile, monkeypatch) -> None:
    ready, control = threading.Event(), Control()
    monkeypatch.setattr(places, "open_control", lambda notices: ready.wait(30) and control)
    source = ControlSource(profile, ())
    news = threading.Event()
    source.start(news.set)
    early = source.submit(ReconnectNow())
    assert not news.is_set() and not early.done() and source.snapshot() == Snapshot()
    ready.set()
    assert early.result(30) == "ReconnectNow"
    assert news.wait(30) and source.snapshot().version == 7
    assert source.submit(ReconnectNow()).result(30) == "ReconnectNow"
    source.close()
    assert control.closed


def test_a_control_that_cannot_start_fails_every_command(profile, monkeypatch) -> None:
    def broken(notices: object) -> None:
        raise OSError("no such folder")

    monkeypatch.setattr(places, "open_control", broken)
    source = ControlSource(profile, ())
    early = source.submit(ReconnectNow())
    source.start(lambda: None)
    with pytest.raises(OSError, match="no such folder"):
        early.result(30)
    with pytest.raises(OSError, match="no such folder"):
        source.submit(ReconnectNow()).result(30)


def test_a_control_that_comes_after_the_panel_has_left_is_closed(profile, monkeypatch) -> None:
    ready, control = threading.Event(), Control()
    closed = threading.Event()
    control.close = closed.set
    monkeypatch.setattr(places, "open_control", lambda notices: ready.wait(30) and control)
    source = ControlSource(profile, ())
    source.start(lambda: None)
    source.close()
    ready.set()
    assert closed.wait(30)


def test_parameters_come_from_the_profile_and_the_settings(profile) -> None:
    source = ControlSource(profile, ("train.learning_rate=0.5",))
    assert source.parameters("train")["epochs"] == 2
    assert source.parameters("train")["learning_rate"] == 0.5


def test_parameters_of_a_faulty_profile_are_empty(tmp_path) -> None:
    assert ControlSource(tmp_path / "missing.toml", ()).parameters("train") == {}


@pytest.mark.parametrize("scene", SCENES)
def test_the_mock_shows_the_same_picture_at_the_same_time(scene) -> None:
    pictures = [MockSource(scene, clock=lambda: 5.0, wall=lambda: 9.0).snapshot() for _ in range(2)]
    assert repr(pictures[0]) == repr(pictures[1])
