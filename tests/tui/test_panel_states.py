"""What the panel says in each situation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.commands import Open, Start
from eagle3_backend.control.snapshot import HostView, Snapshot, StageView
from eagle3_backend.states import LinkState, RunState
from eagle3_tui.theme import Look
from eagle3_tui.widgets.facts import state_words
from eagle3_tui.widgets.header import link_words


async def test_a_profile_that_cannot_be_used_is_told_in_full_where_the_stages_would_stand(show) -> None:
    async with show("empty", (100, 30)) as panel:
        panel.app.screen.failed()
        await panel.settle()
        column = " ".join(line[1:39].strip() for line in panel.lines()[3:7])
        assert "the profile cannot be used: correct it, then press r" in column


async def test_a_running_stage_tells_state_time_share_eta_and_heartbeat(show) -> None:
    async with show("train", (80, 24)) as panel:
        told = panel.text()
    assert "● train     running  02:40:07  61%" in told
    assert "18300/30000 steps" in told
    assert "eta 39m" in told and "beat 2s" in told


async def test_curves_carry_their_newest_value(show) -> None:
    async with show("train", (120, 40)) as panel:
        told = panel.text()
    for title in ("loss 1.637", "acceptance length 2.76", "tok/s 43.3k", "grad norm 0.33"):
        assert title in told


async def test_a_narrow_panel_shows_curves_as_sparklines(show) -> None:
    async with show("train", (80, 24)) as panel:
        assert "acc-len 2.76 ▁" in panel.text()


async def test_every_gpu_has_a_row_where_there_is_room(show) -> None:
    async with show("train", (120, 40)) as panel:
        told = panel.text()
    assert "GPUs · h200-a · 8 x H200" in told
    assert told.count("/141G") == 8


async def test_gpus_that_do_not_fit_are_counted(show) -> None:
    async with show("train", (80, 24)) as panel:
        assert "+5 more" in panel.text()


async def test_a_host_without_gpus_shows_processor_memory_and_disk(show) -> None:
    async with show("cpu", (120, 40)) as panel:
        told = panel.text()
    assert "cpu     43%" in told and "10/24G" in told and "129 GB free" in told


async def test_before_the_first_snapshot_nothing_is_invented(show) -> None:
    async with show("empty", (120, 40)) as panel:
        told = panel.text()
    assert "no host yet" in told and "reading the profile" in told
    assert "waiting for train" in told and "no telemetry yet" in told and "no log yet" in told
    assert "nothing has happened yet" in told


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 60)])
async def test_a_first_run_is_told_what_s_does_how_long_and_how_much_disk(show, size) -> None:
    async with show("first", size) as panel:
        told = panel.text()
    assert "s  trains a drafter for a 135M model and measures it here" in told
    assert "takes about 17 minutes" in told and "needs 7.7 GB of disk (129 GB free)" in told


async def test_a_first_run_that_will_not_fit_on_the_disk_says_so(show) -> None:
    async with show("first", (80, 24)) as panel:
        host = panel.app.picture.host
        full = replace(host, machine=replace(host.machine, disk_free=3_100_000_000))
        shown = replace(panel.app.picture, version=900, host=full)
        panel.source.snapshot = lambda: shown
        await panel.pass_time(1)
        assert "needs 7.7 GB of disk, and only 3.1 GB are free" in panel.text()


async def test_the_keys_of_the_footer_lead_from_a_first_run_to_a_served_drafter(show) -> None:
    async with show("first", (80, 24)) as panel:
        assert "s start" in panel.lines()[-1]
        await panel.press("s")
        assert "through  ▸ bench" in panel.text() and "enter start" in panel.text()
        await panel.press("enter")
        assert Start("bench") in panel.source.commands
        await panel.pass_time(6)
        assert "First run" not in panel.text() and "x stop" in panel.lines()[-1]
    async with show("done", (80, 24)) as panel:
        assert "the campaign is done: v, then s serves the drafter" in panel.lines()[1]
        assert "v serve" in panel.lines()[-1]
        await panel.press("v")
        assert "s start" in panel.lines()[-1]
        await panel.press("s")
        assert "▸ serve" in panel.text()
        await panel.press("enter")
        await panel.pass_time(6)
        assert "http://127.0.0.1:" in panel.text() and "y copies" in panel.text()


async def test_the_hint_goes_when_something_has_run(show) -> None:
    async with show("cpu", (80, 24)) as panel:
        assert "First run" not in panel.text()


async def test_a_lost_link_keeps_the_last_known_state_and_says_how_old_it_is(show) -> None:
    async with show("reconnecting", (80, 24)) as panel:
        told = panel.text()
    assert "◐ reconnecting 12s, try 4 in 6s" in told
    assert "train     running  12s ago" in told
    assert "runs go on on the host" in told


async def test_ages_go_on_while_no_snapshot_comes(show) -> None:
    async with show("reconnecting", (80, 24)) as panel:
        panel.source._made = (panel.source._made[0], panel.source._made[1])
        panel.source.snapshot = lambda frozen=panel.source.snapshot(): frozen
        await panel.pass_time(30)
        told = panel.text()
    assert "reconnecting 42s" in told and "as of 42s ago" in told


async def test_a_stale_link_says_how_old_its_data_is(show) -> None:
    async with show("stale", (120, 40)) as panel:
        assert "● last data 9s" in panel.text()


async def test_a_failed_stage_shows_its_evidence(show) -> None:
    async with show("failed", (120, 40)) as panel:
        told = panel.text()
    assert "✕ train     failed" in told and "exit 137, SIGKILL, likely out of" in told
    assert "u resumes" in told


async def test_a_stage_that_ended_badly_is_marked_so_that_enter_shows_why(show) -> None:
    async with show("first", (120, 40)) as panel:
        ended = tuple(
            replace(view, state=RunState.CRASHED, attempt=1) if view.name == "generate" else view
            for view in panel.app.picture.stages
        )
        crashed = replace(panel.app.picture, version=900, stages=ended)
        panel.source.snapshot = lambda: crashed
        await panel.pass_time(1)
        assert "generate crashed: enter shows why" in panel.lines()[1] and panel.app.screen.stage == "generate"


async def test_a_finished_campaign_counts_its_stages(show) -> None:
    async with show("done", (80, 24)) as panel:
        assert "12 of 13 done" in panel.text()


async def test_a_heartbeat_that_is_late_is_told_in_the_warning_colour(show) -> None:
    from eagle3_tui.widgets.facts import beat_words

    view = StageView("train", "Training", RunState.RUNNING, heartbeat_age=45.0)
    assert beat_words(view) == ("beat 45s", "warn")
    assert beat_words(replace(view, heartbeat_age=3.0)) == ("beat 3s", "dim")
    assert beat_words(replace(view, state=RunState.DONE)) is None


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (HostView("h", LinkState.OFFLINE), "○ offline"),
        (HostView("h", LinkState.CONNECTING, since=97.0), "◌ connecting 3s"),
        (HostView("h", LinkState.LIVE, latency=0.038), "● live 38ms"),
        (HostView("h", LinkState.STALE, data_at=91.0), "● last data 9s"),
        (
            HostView("h", LinkState.RECONNECTING, since=88.0, attempt=4, retry_at=106.0),
            "◐ reconnecting 12s, try 4 in 6s",
        ),
        (HostView("h", LinkState.DENIED), "✕ denied"),
        (HostView("h", LinkState.KEY_CHANGED), "✕ key changed"),
        (HostView("h", LinkState.KEY_CHANGED, offered_key="SHA256:x"), "✕ key changed"),
        (HostView("h", LinkState.OFFLINE, offered_key="ssh-ed25519 SHA256:x"), "! verify host key"),
    ],
)
def test_every_link_state_is_a_glyph_and_words(host: HostView, words: str) -> None:
    assert link_words(host, 100.0, Look())[0] == words


def test_a_done_stage_whose_inputs_changed_reads_out_of_date() -> None:
    view = StageView("train", "Training", RunState.DONE, outdated_by=("prompts",))
    assert "".join(words for words, _ in state_words(view, Look(), 0.0)) == "✓ done, out of date"


async def test_what_changed_above_a_stage_is_named(show) -> None:
    async with show("done", (120, 40)) as panel:
        stages = tuple(
            replace(view, outdated_by=("prompts",)) if view.name == "train" else view
            for view in panel.app.picture.stages
        )
        changed = replace(panel.app.picture, version=10_000, stages=stages)
        panel.source.snapshot = lambda: changed
        panel.app.pull()
        await panel.settle()
        assert "! train     done     prompts changed" in panel.text()


async def test_the_panel_opens_its_profile_after_the_first_frame(show) -> None:
    async with show() as panel:
        assert isinstance(panel.source.commands[0], Open)


async def test_a_snapshot_that_did_not_change_draws_nothing(show) -> None:
    async with show("train") as panel:
        drawn: list[Snapshot] = []
        panel.app.screen.show = drawn.append
        panel.app.pull()
        assert drawn == []


async def test_ascii_mode_draws_nothing_but_ascii(show) -> None:
    for scene in ("train", "reconnecting", "failed", "first", "key_unknown"):
        async with show(scene, (120, 40), ascii_only=True) as panel:
            assert [line for line in panel.lines() if not line.isascii()] == [], scene


async def test_without_colour_states_are_still_told(show, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with show("failed", (120, 40)) as panel:
        assert panel.app.no_color
        assert "✕ train     failed" in panel.text()


async def test_light_and_dark_show_the_same_words(show) -> None:
    async with show("train", (120, 40)) as panel:
        dark = panel.lines()
        background = panel.app.screen.styles.background
        await panel.press("ctrl+t")
        assert panel.lines() == dark
        assert panel.app.screen.styles.background != background


async def test_a_finished_bench_tells_both_acceptance_lengths(show) -> None:
    async with show("done", (80, 24)) as panel:
        panel.app.screen.choose_stage("bench")
        await panel.settle()
        told = panel.text()
    assert "bench     done     acc 2.31/1.52" in told
    assert "acceptance length 2.31 in domain, 1.52 published, speed x1.37" in told


def test_a_summary_without_the_expected_figures_is_no_headline() -> None:
    from eagle3_tui.widgets.facts import result_words

    for summary in ({}, {"acceptance_length": 3}, {"acceptance_length": {"in_domain": 2}}, {"acceptance_length": None}):
        for name in ("bench", "evaluate", "train"):
            words = result_words(StageView(name, "", RunState.DONE, summary=summary))
            assert all(isinstance(word, str) for word in words)
