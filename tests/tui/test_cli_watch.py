"""Progress lines made from snapshots."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from eagle3_backend.control.snapshot import HostView, Snapshot, StageView
from eagle3_backend.findings import error
from eagle3_backend.states import LinkState, RunState
from eagle3_tui.commands import watch
from eagle3_tui.commands.output import clean, duration
from eagle3_tui.commands.watch import Progress
from eagle3_tui.text import size

TRAIN = StageView("train", "Training", RunState.RUNNING, attempt=1, done=25, total=100, unit="steps", rate=2.5, eta=30)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def picture(*views, link=LinkState.LIVE):
    return Snapshot(host=HostView("box", link), stages=views)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def told():
    """A progress on a plain stream, with its clock."""
    clock = Clock()
    progress = Progress(io.StringIO(), clock)
    return progress, clock, lambda: progress._stream.getvalue().splitlines()


def test_a_progress_line_has_stage_amount_share_rate_and_eta(told):
    progress, _, lines = told
    progress.show(picture(TRAIN))
    assert lines() == ["train     running", "train     25/100 steps  25%  2.5/s  ETA 00:00:30"]


def test_plain_progress_lines_keep_their_distance(told):
    progress, clock, lines = told
    for done in range(30, 60):
        progress.show(picture(replace(TRAIN, done=done)))
        clock.now += 1.0
    assert len(lines()) == 1 + 30 / watch.LINE_SECONDS


def test_what_had_ended_before_is_no_news(told):
    progress, _, lines = told
    old = StageView("vocab", "", RunState.DONE, attempt=1, findings=(error("loss_nan", "Old."),))
    progress.show(picture(old, TRAIN))
    assert not any("vocab" in line for line in lines())


def test_an_end_is_told_with_its_evidence(told):
    progress, _, lines = told
    progress.show(picture(TRAIN))
    progress.show(picture(replace(TRAIN, state=RunState.FAILED, remark="exit 137, SIGKILL", elapsed=61.0)))
    assert lines()[-1] == "train     failed  00:01:01  exit 137, SIGKILL"


def test_what_a_link_brings_back_is_no_news(told):
    progress, _, lines = told
    for state in (RunState.RUNNING, RunState.UNKNOWN, RunState.RUNNING):
        progress.show(picture(replace(TRAIN, state=state, done=None)))
    assert lines() == ["train     running"]
    progress.show(picture(replace(TRAIN, state=RunState.UNKNOWN)))
    progress.show(picture(replace(TRAIN, state=RunState.DONE)))
    assert lines()[-1].startswith("train     done")


def test_a_finding_is_told_once_with_its_next_step(told):
    progress, _, lines = told
    found = error("loss_nan", "NaN.", path="train", actual=["a", "list"], fix="Lower the rate.")
    for _ in range(3):
        progress.show(picture(replace(TRAIN, findings=(found,))))
    assert sum("loss_nan" in line for line in lines()) == 1
    assert "  next: Lower the rate." in lines()


def test_a_lost_link_is_told_and_that_jobs_go_on(told):
    progress, _, lines = told
    progress.show(picture(TRAIN))
    progress.show(picture(TRAIN, link=LinkState.RECONNECTING))
    assert lines()[-1] == "box: reconnecting; jobs keep running on the host"


def test_a_terminal_line_is_rewritten_in_place_and_closed_at_the_end():
    stream = Terminal()
    progress = Progress(stream)
    progress.show(picture(TRAIN))
    progress.show(picture(replace(TRAIN, done=26)))
    progress.end()
    written = stream.getvalue()
    assert written.count("\n") == 2 and written.count("\r\x1b[K") == 2
    assert written.endswith("26/100 steps  26%  2.5/s  ETA 00:00:30\n")


def test_remote_text_moves_no_cursor(told):
    progress, _, lines = told
    progress.show(picture(replace(TRAIN, unit="x\x1b[2J\r\n")))
    assert "\x1b" not in "".join(lines()) and len(lines()) == 2


def test_words_for_amounts():
    assert [duration(value) for value in (0, 59.6, 3725)] == ["00:00:00", "00:01:00", "01:02:05"]
    assert [size(value) for value in (0, 999, 1_500, 2e9, 3.2e12)] == ["0 B", "999 B", "1.5 kB", "2.0 GB", "3.2 TB"]
    assert clean("a\tb\x07é[/]") == "a�b�é[/]"
