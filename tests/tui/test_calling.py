"""The bell and the note on the desktop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.snapshot import ALERT, Event
from eagle3_backend.states import RunState
from eagle3_tui.calling import note
from eagle3_tui.configuration import Configuration

NOON = 1_764_424_931.0


def called(panel) -> list[str]:
    """What rings from now on."""
    rung: list[str] = []
    panel.app.bell = lambda: rung.append("bell")
    panel.app.send_to_terminal = rung.append
    return rung


async def test_the_terminal_rings_once_and_the_footer_says_why(show, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("VTE_VERSION", raising=False)
    async with show("train", (120, 40)) as panel:
        rung = called(panel)
        panel.source._states["train"] = RunState.DONE
        await panel.pass_time(1)
        assert rung == ["bell", "\x1b]9;train done\x07"] and "train done" in panel.lines()[-1]
        await panel.pass_time(1)
        assert len(rung) == 2 and panel.app.picture.events[-1].kind == ALERT


@pytest.mark.parametrize(
    ("own", "kinds"),
    [
        (Configuration(bell=False), ["note"]),
        (Configuration(desktop=False), ["bell"]),
        (Configuration(bell=False, desktop=False), []),
    ],
)
async def test_what_the_operator_does_not_want_stays_away(show, own, kinds, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    async with show("train", (120, 40), own=own) as panel:
        rung = called(panel)
        panel.source._states["train"] = RunState.FAILED
        await panel.pass_time(1)
        assert ["bell" if one == "bell" else "note" for one in rung] == kinds
        assert "train failed" in panel.lines()[-1]


async def test_old_alerts_those_of_quiet_hours_and_those_that_another_panel_rings_for_do_not_ring(show) -> None:
    async with show("train", (120, 40)) as panel:
        rung = called(panel)
        told = (
            Event(NOON - 60, "train", "failed", "error", ALERT),
            Event(NOON + 1, "bench", "failed", "error", ALERT, {"quiet": True}),
            Event(NOON + 1, "train", "failed", "error", ALERT, {"quiet": False, "elsewhere": True}),
        )
        picture = replace(panel.app.picture, version=900, events=told)
        panel.source.snapshot = lambda: picture
        await panel.pass_time(1)
        assert rung == [] and "train failed" in panel.lines()[-1]


@pytest.mark.parametrize(
    ("environment", "sequence"),
    [
        ({"TERM": "xterm-kitty"}, "\x1b]9;box: a, b\x07"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "\x1b]777;notify;eagle3-tui;box: a, b\x07"),
        ({"TERM": "foot"}, "\x1b]777;notify;eagle3-tui;box: a, b\x07"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"}, "\x1bPtmux;\x1b\x1b]9;box: a, b\x07\x1b\\"),
        ({"TERM": "screen"}, "\x1bP\x1b]9;box: a, b\x07\x1b\\"),
        ({"TERM": "linux"}, ""),
        ({"TERM": "vt100"}, ""),
    ],
)
def test_each_terminal_gets_what_it_understands(environment, sequence) -> None:
    assert note("box: a; b", environment) == sequence


def test_remote_words_end_no_sequence() -> None:
    told = note("evil\x07\x1b]52;c;aGk=\x07 \x9c name", {"TERM": "xterm"})
    assert told.startswith("\x1b]9;") and told.endswith("\x07")
    assert not {"\x07", "\x1b", "\x9c"} & set(told[3:-1])
