"""What the keys do, and what stands between a key and an act."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.commands import (
    DeleteArtifact,
    DryRun,
    FollowLog,
    ReconnectNow,
    Resume,
    Start,
    Stop,
    TrustHostKey,
)
from eagle3_backend.findings import FindingError, error
from eagle3_tui import keymap
from eagle3_tui.mock import MockSource
from eagle3_tui.screens.dashboard import Dashboard
from eagle3_tui.screens.stage import StageScreen


def acts(panel) -> list:
    """The commands that change something, in order."""
    return [one for one in panel.source.commands if isinstance(one, Start | Stop | Resume | TrustHostKey)]


async def test_every_action_of_the_table_exists(show) -> None:
    async with show() as panel:
        for binding in panel.app._bindings.key_to_bindings.values():
            for one in binding:
                name = one.action.removeprefix("app.").partition("(")[0]
                assert hasattr(panel.app, f"action_{name}"), one.action
    from eagle3_tui.screens import VISITED, dialogs, visited
    from eagle3_tui.screens.chart import ChartScreen
    from eagle3_tui.screens.choose import ChooseDialog
    from eagle3_tui.screens.stage import Facts
    from eagle3_tui.widgets.log import LogTail
    from eagle3_tui.widgets.pipeline import Pipeline
    from eagle3_tui.widgets.prompt import Prompt

    owners = [
        *map(visited, VISITED), ChartScreen, ChooseDialog, Prompt, Dashboard, StageScreen, Pipeline, LogTail, Facts,
        dialogs.StartDialog, dialogs.StopDialog, dialogs.ConfirmDialog, dialogs.HostKeyDialog, dialogs.MessageDialog,
    ]  # fmt: skip
    for owner in owners:
        for binding in owner.BINDINGS:
            where, _, name = binding.action.rpartition(".")
            assert hasattr(Dashboard if where == "screen" else owner, f"action_{name}"), (owner, binding.action)


async def test_start_shows_the_chain_and_runs_it_through_bench(show) -> None:
    async with show("refused", (80, 24)) as panel:
        await panel.press("s")
        told = panel.text()
        assert "through  ▸ bench" in told
        assert "train → export → bench" in told and "done already: setup" in told
        assert "forecast: about 1h57m, 6.0 GB of disk" in told
        panel.source.scene = "train"
        await panel.press("enter")
        assert acts(panel) == [Start("bench")]


async def test_a_stage_picked_by_hand_is_the_last_of_the_chain(show) -> None:
    async with show("refused", (80, 24)) as panel:
        await panel.press("j", "s")
        assert "▸ evaluate" in panel.text()
        panel.source.scene = "train"
        await panel.press("enter")
        assert acts(panel) == [Start("evaluate")]


async def test_tab_changes_what_a_start_leads_to(show) -> None:
    async with show("refused", (80, 24)) as panel:
        panel.source.scene = "train"
        await panel.press("s", "tab", "enter")
        assert acts(panel) == [Start("train")]


async def test_esc_leaves_a_start_undone(show) -> None:
    async with show("refused") as panel:
        await panel.press("s", "escape")
        assert acts(panel) == []
        assert isinstance(panel.app.screen, Dashboard)


async def test_a_refusal_shows_its_finding_and_wants_the_code_typed(show) -> None:
    async with show("refused", (80, 24)) as panel:
        await panel.press("s", "enter")
        told = panel.text()
        assert "✕ error disk_forecast_exceeds_free" in told and "host.workspace" in told
        assert "expected at most 812 GB, found 1.4 TB" in told
        await panel.press(*"yes", "enter")
        assert "'yes' does not accept disk_forecast_exceeds_free" in panel.text()
        panel.app.screen.query_one("Input").value = ""
        await panel.press(*"disk", "underscore", *"forecast", "underscore", *"exceeds", "underscore", *"free", "enter")
        assert acts(panel)[-1] == Start("bench", accept=("disk_forecast_exceeds_free",))


async def test_a_refusal_can_be_left(show) -> None:
    async with show("refused") as panel:
        await panel.press("s", "enter", "escape")
        assert len(acts(panel)) == 1
        assert isinstance(panel.app.screen, Dashboard)


async def test_a_stop_is_confirmed_and_waits_for_its_grace_time(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("x")
        assert "Stop train" in panel.text()
        await panel.press("enter")
        assert "train is asked to stop in 5 s" in panel.text()
        assert acts(panel) == []
        for _ in range(5):
            panel.app.screen._second()
        await panel.settle()
        assert acts(panel) == [Stop("train")]


async def test_a_kill_wants_the_stage_typed(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("X")
        assert "Kill train" in panel.text() and "type train and press enter" in panel.text()
        await panel.press("enter")
        assert acts(panel) == []
        await panel.press(*"bench", "enter")
        assert "'bench' is another name" in panel.text() and acts(panel) == []
        panel.app.screen.query_one("Input").value = ""
        await panel.press(*"train", "enter")
        assert acts(panel) == [Stop("train", kill=True)]


async def test_a_kill_is_left_with_esc_and_off_where_nothing_runs(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("X", "escape", "k", "X")
        assert "cannot kill" in panel.lines()[-1] and acts(panel) == []
    async with show("train", (80, 24), readonly=True) as panel:
        await panel.press("X")
        assert "--readonly" in panel.lines()[-1] and acts(panel) == []


def deleted(panel) -> list[str]:
    return [one.path for one in panel.source.commands if isinstance(one, DeleteArtifact)]


async def test_an_artifact_is_chosen_and_deleted_once_the_stage_is_typed(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press(*"kkkkkk", *"jjjj", "enter", "D")
        await panel.settle()
        assert panel.app.screen_stack[1].stage == "extract"
        assert "set aside by a restart" in panel.text() and "whole, as planned" in panel.text()
        await panel.press("enter")
        told = panel.text()
        assert "/data/eagle3/qwen3-8b/extract/51c0d2e4" in told and "type extract and press enter" in told
        assert "extract is no longer fresh" in told and "train, evaluate lose an input" in " ".join(told.split())
        await panel.press(*"train", "enter")
        assert "'train' is another name" in panel.text() and deleted(panel) == []
        panel.app.screen.query_one("Input").value = ""
        await panel.press(*"extract", "enter")
        await panel.settle()
        assert deleted(panel) == ["/data/eagle3/qwen3-8b/extract/51c0d2e4"]
        assert "deleted 200 GB" in panel.lines()[-1]


async def test_a_deletion_is_left_with_esc_and_refused_where_a_run_works(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("enter", "D")
        await panel.settle()
        assert "Delete train" in panel.text()
        await panel.press("escape")
        assert isinstance(panel.app.screen, StageScreen) and deleted(panel) == []
        await panel.press("D")
        await panel.settle()
        await panel.press(*"train", "enter")
        await panel.settle()
        assert "Not deleted" in panel.text() and "is running and writes this" in panel.text()
    async with show("train", (80, 24), readonly=True) as panel:
        await panel.press("enter", "D")
        assert "--readonly" in panel.lines()[-1] and deleted(panel) == []


async def test_a_stage_without_artifacts_has_nothing_to_delete(show) -> None:
    async with show("first", (80, 24)) as panel:
        await panel.press("enter", "D")
        await panel.settle()
        assert "has nothing to delete" in panel.lines()[-1]


async def test_x_again_stops_at_once(show) -> None:
    async with show("train") as panel:
        await panel.press("x", "enter", "x")
        assert acts(panel) == [Stop("train")]
        await panel.pass_time(1)
        assert "train     stopped" in panel.text()


@pytest.mark.parametrize("keys", [("x", "escape"), ("x", "n"), ("x", "enter", "escape")])
async def test_a_stop_can_be_taken_back(show, keys) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press(*keys)
        assert acts(panel) == []
        assert "train goes on" in panel.text()


async def test_a_restart_says_that_the_old_attempt_is_kept(show) -> None:
    async with show("failed", (80, 24)) as panel:
        await panel.press("R")
        assert "attempt 1 is kept" in panel.text()
        await panel.press("y")
        assert acts(panel) == [Start("train", only=True, restart=True)]


async def test_resume_asks_for_the_next_attempt(show) -> None:
    async with show("failed") as panel:
        await panel.press("u", "enter")
        assert acts(panel) == [Resume("train")]


@pytest.mark.parametrize(
    ("scene", "key", "reason"),
    [
        ("train", "s", "cannot start: train is running already"),
        ("train", "u", "cannot resume: train is running"),
        ("train", "R", "cannot restart: train is running; stop it first"),
        ("failed", "x", "cannot stop: train is not running"),
        ("reconnecting", "x", "cannot stop: the link is reconnecting; runs go on on the host"),
        ("reconnecting", "s", "cannot start: the link is reconnecting; runs go on on the host"),
        ("first", "u", "cannot resume: setup has not run yet"),
        ("first", "R", "cannot restart: setup has not run yet; start it"),
    ],
)
async def test_a_key_that_is_off_says_why(show, scene, key, reason) -> None:
    async with show(scene, (80, 24)) as panel:
        await panel.press(key)
        assert reason in panel.lines()[-1]
        assert acts(panel) == []


async def test_the_reason_goes_after_a_few_seconds(show) -> None:
    async with show("failed", (80, 24)) as panel:
        await panel.press("x")
        await panel.pass_time(6)
        assert "s start" in panel.lines()[-1]


async def test_the_selection_follows_the_work_until_it_is_moved(show) -> None:
    async with show("train") as panel:
        assert panel.app.screen.stage == "train"
        await panel.press("k")
        assert panel.app.screen.stage == "vocab"
        await panel.pass_time(5)
        assert panel.app.screen.stage == "vocab"
        await panel.press("G")
        assert panel.app.screen.stage == "trace"
        await panel.press("down")
        assert panel.app.screen.stage == "trace"
        await panel.press("g")
        assert panel.app.screen.stage == "setup"


async def test_enter_opens_the_stage_and_esc_returns(show) -> None:
    async with show("failed", (120, 40)) as panel:
        await panel.press("enter")
        told = panel.text()
        assert isinstance(panel.app.screen, StageScreen)
        assert "exit 137, SIGKILL, likely out of memory" in told
        assert "✕ error stage_killed" in told
        assert "Parameters" in told
        await panel.press("escape")
        assert isinstance(panel.app.screen, Dashboard)


async def test_the_stage_screen_shows_parameters_summary_and_its_own_log(show) -> None:
    async with show("done", (120, 60)) as panel:
        await panel.press("G", "k", "k", "enter")
        told = panel.text()
        assert FollowLog("bench") in panel.source.commands
        assert "in_domain" in told and "2.31 (2.20 to 2.43)" in told
        assert "ttt_steps" in told and "learning_rate" in told
        await panel.press("escape")
        assert panel.source.commands[-1] == FollowLog("")


async def test_brackets_on_a_stage_show_the_logs_of_earlier_attempts(show) -> None:
    class Resumed(MockSource):
        chosen = 3

        def snapshot(self):
            shown = super().snapshot()
            stages = tuple(replace(one, attempt=3) if one.name == "train" else one for one in shown.stages)
            return replace(shown, stages=stages, log=replace(shown.log, attempt=self.chosen))

        def _act(self, command):
            if isinstance(command, FollowLog):
                self.chosen = command.attempt or 3
            return super()._act(command)

    async with show(source=Resumed("failed"), size=(120, 40)) as panel:
        await panel.press("enter")
        assert "a attempts" in panel.lines()[-1] and "attempt 3" in panel.text()
        keys = ("left_square_bracket", "left_square_bracket", "right_square_bracket", "right_square_bracket")
        for key, chosen, told in zip(
            keys, (2, 1, 2, 0), ("attempt 2", "attempt 1", "attempt 2", "attempt 3"), strict=True
        ):
            await panel.press(key)
            assert panel.source.commands[-1] == FollowLog("train", chosen)
            await panel.pass_time(1)
            assert f"Log · train · {told}" in panel.text()
    async with show("failed", (120, 40)) as panel:
        await panel.press("enter", "left_square_bracket")
        assert "train has no older attempt" in panel.lines()[-1]


async def test_the_stage_screen_tells_why_it_ended_its_attempts_findings_and_log(show) -> None:
    async with show("failed", (120, 60)) as panel:
        await panel.press("enter")
        told = panel.text()
    for words in ("✕ failed", "exit 137, SIGKILL", "error stage_killed", "expected exit 0", "found exit 137",
                  "→ Resume from step 18300", "51c0/1     ✓ done", "8e07/2     ✕ failed", "ttt_steps",
                  "Log · train · attempt 1", "step=18295"):  # fmt: skip
        assert words in told, words


async def test_the_stage_screen_tells_its_artifact_with_size_and_hashes(show) -> None:
    async with show("done", (120, 60)) as panel:
        panel.app.screen.choose_stage("extract")
        await panel.press("enter")
        told = panel.text()
    for words in ("/data/eagle3/qwen3-8b/extract", "200 GB", "51c0d2e4", "9f1c0000  train-000"):
        assert words in told, words


async def test_the_facts_of_a_stage_scroll(show) -> None:
    async with show("failed", (80, 24)) as panel:
        await panel.press("enter", "G")
        assert "output /data/eagle3/qwen3-8b/train" in panel.text()
        await panel.press("g")
        assert "output /data/eagle3/qwen3-8b/train" not in panel.text()


async def test_l_shows_the_log_of_the_selected_stage_from_then_on(show) -> None:
    async with show("train") as panel:
        await panel.press("k", "l")
        assert panel.source.commands[-1] == FollowLog("vocab")
        await panel.pass_time(3)
        assert panel.source.commands[-1] == FollowLog("vocab")


async def test_r_tries_the_link_at_once(show) -> None:
    async with show("reconnecting") as panel:
        await panel.press("r")
        assert panel.source.commands[-1] == ReconnectNow()


async def test_help_lists_every_key_and_is_left_with_esc(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press("question_mark")
        assert "Here: pipeline" in panel.lines()[2]
        told = "\n".join(line.plain for line in panel.app.screen.query_one("Help").all_lines(150))
        assert [key.id for key in keymap.KEYS if key.about.split(";")[0][:40] not in told] == []
        await panel.press("escape")
        assert isinstance(panel.app.screen, Dashboard)


async def test_tab_moves_the_focus_and_the_footer_follows(show) -> None:
    async with show("train", (80, 24)) as panel:
        assert "enter open" in panel.lines()[-1]
        await panel.press("tab")
        assert "f follow" in panel.lines()[-1]
        assert sum("┏" in line for line in panel.lines()) == 1


async def test_an_unknown_host_key_is_shown_and_cancelled_by_default(show) -> None:
    async with show("key_unknown", (80, 24)) as panel:
        told = panel.text()
        assert "SHA256:2b6pKkqfW1m3o0T8k0bWQ9vHn1n4zFq0rB7iJYlR5mM" in told
        await panel.press("enter")
        assert acts(panel) == []
        await panel.press("escape")
        assert acts(panel) == []
        assert "not accepted" in panel.text()


@pytest.mark.parametrize(("key", "save"), [("a", False), ("s", True)])
async def test_an_unknown_host_key_is_accepted_once_or_saved(show, key, save) -> None:
    async with show("key_unknown") as panel:
        await panel.press(key)
        assert acts(panel) == [TrustHostKey(save=save)]


async def test_the_host_key_question_comes_again_with_r(show) -> None:
    async with show("key_unknown") as panel:
        await panel.press("escape")
        await panel.pass_time(1)
        assert isinstance(panel.app.screen, Dashboard)
        await panel.press("r")
        await panel.pass_time(1)
        assert "Unknown host key" in panel.text()


async def test_a_changed_host_key_offers_no_way_to_accept_it(show) -> None:
    async with show("key_changed", (80, 24)) as panel:
        told = panel.text()
        assert "SHA256:uNiVztksCsDhcc0u9e8BrM2nGyHg1S8b4c0wY4bG0hQ" in told
        assert "SHA256:2b6pKkqfW1m3o0T8k0bWQ9vHn1n4zFq0rB7iJYlR5mM" in told
        assert "hosts rebind h200-a" in told
        await panel.press("a", "s", "enter")
        assert acts(panel) == []


async def test_a_failed_profile_shows_each_of_its_faults(show) -> None:
    async with show("empty", (80, 24)) as panel:
        problem = FindingError(
            error("profile_key_unknown", "'epoch' is not a known key.", path="stages.train.epoch"),
            error("profile_value_invalid", "Input should be a valid number", path="stages.train.learning_rate"),
        )
        panel.app._refuse(panel.source.commands[0], problem)
        await panel.settle()
        told = panel.text()
        assert "stages.train.epoch" in told and "stages.train.learning_rate" in told


async def test_a_refused_profile_is_read_again_with_r(show) -> None:
    async with show("empty", (80, 24)) as panel:
        opening = panel.source.commands[0]
        panel.app._refuse(opening, FindingError(error("profile_invalid", "The profile is not TOML.")))
        await panel.settle()
        await panel.press("escape")
        assert "correct it, then press r" in panel.text()
        await panel.press("r")
        assert panel.source.commands[-1] == opening


async def test_an_engine_fault_opens_a_dialog_and_the_panel_lives_on(show) -> None:
    async with show("train", (80, 24)) as panel:
        panel.source._act = lambda command: 1 / 0
        await panel.press("r")
        assert "Engine fault" in panel.text() and "ZeroDivisionError" in panel.text()
        await panel.press("escape")
        await panel.pass_time(1)
        assert "● train     running" in panel.text()


async def test_autostart_starts_once_when_the_link_is_up(show) -> None:
    async with show("connecting", autostart="bench") as panel:
        await panel.pass_time(1)
        assert acts(panel) == []
        panel.source.scene = "first"
        await panel.pass_time(1)
        await panel.pass_time(1)
        assert acts(panel) == [Start("bench")]


async def test_quitting_says_what_goes_on(show) -> None:
    async with show("train") as panel:
        await panel.press("q")
        assert not panel.app.is_running or panel.app._exit
        said = "".join(str(one) for one in panel.app._exit_renderables)
    assert "train goes on on h200-a" in said


async def test_ctrl_c_needs_a_second_one(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("ctrl+c")
        assert "ctrl+c again or q" in panel.lines()[-1]
        assert not panel.app._exit
        await panel.press("ctrl+c")
        assert panel.app._exit


async def test_an_ended_start_that_had_nothing_to_do_says_so(show) -> None:
    from eagle3_backend.control.snapshot import Started

    async with show("train", (80, 24)) as panel:
        panel.app._tell(Started((), ("setup", "target")), "started")
        await panel.settle()
        assert "everything is done already" in panel.lines()[-1]
        panel.app._tell(replace(Started((), ()), already_running=True), "started")
        await panel.settle()
        assert "it is running already" in panel.lines()[-1]


async def test_a_resume_shows_where_it_goes_on_and_what_is_another(show) -> None:
    async with show("failed", (100, 30)) as panel:
        panel.source.parameters = lambda stage: {"learning_rate": 0.5, "only_here": 1}
        await panel.press("u")
        told = " ".join(panel.text().replace("│", " ").split())
        assert "Attempt 2 of train goes on from its newest whole checkpoint" in told
        assert "18300 of 30000" in told.replace(",", "").replace("18.3k of 30.0k", "18300 of 30000")
        assert "Other parameters than attempt 1" in told and "learning_rate" in told and "only_here" not in told
        await panel.press("escape")
        assert acts(panel) == []


async def test_a_resume_waits_for_no_answer_of_the_host(show) -> None:
    async with show("failed", (100, 30)) as panel:
        panel.app.inquire = lambda *_: None
        await panel.press("u", "enter")
        assert acts(panel) == [Resume("train")]


@pytest.mark.parametrize(("key", "words", "gone"), [("m", "dockerd", "serve.py"), ("t", "lab", "h100-b")])
async def test_a_list_is_narrowed_by_words_and_esc_widens_it(show, key, words, gone) -> None:
    async with show("train") as panel:
        await panel.press(key, "slash", *words, "enter")
        told = panel.text()
        assert f"only {words}" in told and words in told and gone not in told
        await panel.press("escape")
        assert gone in panel.text()
        await panel.press("escape")
        assert isinstance(panel.app.screen, Dashboard)


async def test_a_start_shows_command_fingerprint_gpus_and_what_stands_against_it(show) -> None:
    spec = {"stage": "bench", "fingerprint": "3f9c51c0aa"}
    finding = error("disk_low", "The disk is nearly full.").to_json()
    launch = {"engine": "vllm", "line": "vllm serve [/]target --speculative-config x", "reasons": []}
    answer = {"stages": [spec], "launches": {"bench": launch}, "fresh": [], "findings": [finding]}

    class Planning(MockSource):
        def _act(self, command):
            return answer if isinstance(command, DryRun) else super()._act(command)

    async with show(source=Planning("refused"), size=(120, 40)) as panel:
        await panel.press("s")
        told = panel.text()
        assert "3f9c51c0aa of bench" in told and "bench: vllm serve [/]target" in told and "8 x H200" in told
        assert "disk_low: The disk is nearly full." in told
        answer["findings"] = []
        await panel.press("tab")
        assert "nothing stands against it" in panel.text()


async def test_a_start_that_cannot_be_checked_can_still_be_asked_for(show) -> None:
    class Refusing(MockSource):
        def _act(self, command):
            if isinstance(command, DryRun):
                raise FindingError(error("environment_missing", "There is no environment yet."))
            return super()._act(command)

    async with show(source=Refusing("refused"), size=(80, 24)) as panel:
        await panel.press("s")
        assert "not checked: There is no environment yet." in panel.text()
        panel.source.scene = "train"
        await panel.press("enter")
        assert acts(panel) == [Start("bench")]


async def test_a_reduced_panel_redraws_every_two_seconds_and_moves_nothing(show) -> None:
    async with show("train", reduced=True) as panel:
        await panel.pass_time(10)
        before = panel.app.picture.version
        await panel.pass_time(1)
        assert panel.app.picture.version == before
        await panel.pass_time(1.1)
        assert panel.app.picture.version > before and panel.app.animation_level == "none"
