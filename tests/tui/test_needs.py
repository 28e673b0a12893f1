"""What waits for a person, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.snapshot import HostView, Machine, Snapshot, StageView
from eagle3_backend.findings import error
from eagle3_backend.states import LinkState, RunState
from eagle3_tui.needs import Remaining, cost_words, needs, remaining

LIVE = HostView("box", LinkState.LIVE)


def campaign(*views: StageView, host: HostView = LIVE) -> Snapshot:
    return Snapshot(version=1, host=host, stages=views, price_per_hour=2.0, spent_seconds=5400.0)


def stage(name: str, state: RunState, **values) -> StageView:
    return StageView(name, name, state, run=name, **values)


DONE = stage("export", RunState.DONE, fresh=True, needs=("export",))
BENCH = stage("bench", RunState.READY, needs=("export", "bench"))


@pytest.mark.parametrize(
    ("snapshot", "told"),
    [
        (campaign(stage("train", RunState.FAILED)), "train failed: enter shows why, u resumes"),
        (campaign(stage("train", RunState.STOPPED)), "train is stopped: u resumes"),
        (campaign(stage("train", RunState.RUNNING, heartbeat_age=90.0)), "train shows no sign of life for 1m30s"),
        (campaign(stage("train", RunState.RUNNING, findings=(error("loss_nan", ""),))), "train: loss_nan"),
        (campaign(DONE, BENCH), "nothing runs: s starts bench and what follows"),
        (campaign(DONE, replace(BENCH, fresh=True)), "the campaign is done: v, then s serves the drafter"),
        (campaign(DONE, host=HostView("box", LinkState.KEY_CHANGED)), "the host key of box has changed"),
        (campaign(DONE, host=HostView("box", offered_key="k")), "box wants its host key checked: r asks"),
        (campaign(DONE, host=HostView("box", LinkState.RECONNECTING, since=-500.0)), "no link to box for 8m20s"),
        (
            campaign(DONE, host=replace(LIVE, machine=Machine(disk_free=10**9, disk_total=10**12))),
            "only 1.0 GB of disk left",
        ),
    ],
)
def test_what_does_not_go_on_by_itself_is_named(snapshot, told) -> None:
    assert needs(snapshot, 0.0)[0].words == told


def test_nothing_waits_while_a_stage_works_or_before_anything_is_known() -> None:
    assert needs(campaign(stage("train", RunState.RUNNING, heartbeat_age=2.0)), 0.0) == ()
    assert needs(Snapshot(), 0.0) == ()
    assert needs(campaign(stage("train", RunState.UNKNOWN, last_state=RunState.RUNNING)), 0.0) == ()


def test_the_forecast_counts_what_the_stage_at_work_still_takes() -> None:
    forecast = {
        "stages": [{"stage": "train", "seconds": 1000.0}, {"stage": "bench", "seconds": 600.0}],
        "total": {"bytes": 5_000_000_000},
    }
    working = campaign(stage("train", RunState.RUNNING, eta=120.0), BENCH)
    assert remaining(forecast, working) == Remaining(720.0, True)
    assert remaining(forecast, campaign(stage("train", RunState.RUNNING, elapsed=400.0), BENCH)).seconds == 1200.0
    assert cost_words(forecast, working) == ["2.00/h", "spent 3.00", "to go: 12m, 0.40, 5.0 GB"]


def test_a_forecast_that_does_not_know_a_stage_says_that_it_takes_longer() -> None:
    forecast = {"stages": [{"stage": "train", "seconds": 600.0}, {"stage": "bench", "seconds": None}],
                "total": {"bytes": 5_000_000_000}}  # fmt: skip
    assert cost_words(forecast, campaign(BENCH))[-1] == "to go: over 10m, over 0.33, 5.0 GB"
    forecast["stages"][0]["seconds"] = None
    assert cost_words(forecast, campaign(BENCH))[-1] == "to go: time unknown, 5.0 GB"


def test_without_a_price_or_with_nothing_to_come_no_figure_is_made_up() -> None:
    free = replace(campaign(DONE, BENCH), price_per_hour=0.0)
    assert cost_words(None, free) == [] and cost_words({"stages": [], "total": {"bytes": 0}}, free) == []
    forecast = {"stages": [{"stage": "bench", "seconds": 600.0}], "total": {"bytes": 0}}
    assert cost_words(forecast, free) == ["to go: 10m"]


async def test_the_line_stands_on_top_of_the_dashboard(show) -> None:
    async with show("train", (120, 40)) as panel:
        line = panel.lines()[1]
        assert line.startswith(" ✓ nothing waits for you") and "28.00/h" in line and "to go" in line
    async with show("failed", (80, 24)) as panel:
        assert panel.lines()[1].startswith(" ✕ train failed: enter shows why, u resumes")


async def test_where_it_is_short_the_line_gives_its_place_to_the_pipeline(show) -> None:
    async with show("train", (80, 18)) as panel:
        assert "Pipeline" in panel.lines()[1]
