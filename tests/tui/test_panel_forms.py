"""The form of the profile, bench results and the service, as an operator uses them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from eagle3_backend.control.commands import DryRun, Endpoint, Open, Results, Start, Stop, WriteProfile
from eagle3_backend.findings import FindingError, error, warning
from eagle3_backend.states import LinkState, RunState
from eagle3_tui.commandline import run_line
from eagle3_tui.mock import MockSource
from eagle3_tui.screens.dashboard import Dashboard

TEXT = """\
# Ours.
[host]
address = "embedded"

[target]
model = "demo:smollm2-135m"

[stages.train]
epochs = 3 # passes
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return path


async def form(panel, profile: Path) -> None:
    panel.app.open_profile(profile)
    await panel.settle()
    await panel.press("c")
    await panel.until(lambda: panel.app.screen.form is not None)


async def find(panel, words: str) -> None:
    await panel.press("slash")
    await panel.settle()
    panel.app.screen.query_one("#prompt Input").value = words
    await panel.press("enter")
    await panel.settle()


async def edit(panel, words: str, key: str = "i") -> None:
    """Type another value for the marked key, and wait until it was checked."""
    before = panel.app.screen.form
    await panel.press(key)
    await panel.settle()
    panel.app.screen.query_one("#prompt Input").value = words
    await panel.press("enter")
    await panel.until(lambda: panel.app.screen.form is not before)
    await panel.settle()


async def test_the_form_shows_every_key_with_its_meaning_and_the_marked_one_in_full(show, profile) -> None:
    async with show("train", (120, 40)) as panel:
        await form(panel, profile)
        told = panel.text()
        assert "Config · mine.toml" in panel.lines()[1] and '"demo:smollm2-135m"' in told
        await find(panel, "train.loss")
        told = panel.text()
        assert "may be    kl, lk_hybrid" in told and "makes new train and 6 stages that read it" in told


async def test_an_edit_is_said_to_put_artifacts_out_of_date_before_it_is_saved(show, profile, writing) -> None:
    async with show(size=(120, 40), source=writing("done")) as panel:
        await form(panel, profile)
        await find(panel, "train.epochs")
        await edit(panel, "5", "enter")
        told = panel.text()
        assert "1 not saved" in told and "Not saved: out of date by it: train, evaluate, export, bench" in told
        assert "was       3" in told and profile.read_text() == TEXT
        await panel.press("w")
        await panel.until(lambda: "enter save" in panel.text())
        told = panel.text()
        assert "Out of date by it: train," in told and "enter save" in told
        await panel.press("escape")
        assert profile.read_text() == TEXT
        await panel.press("w", "enter")
        await panel.until(lambda: "not saved" not in panel.text())
        assert profile.read_text() == TEXT.replace("epochs = 3 #", "epochs = 5 #")
        assert panel.source.commands[-1] == Open(profile)


async def test_edits_are_taken_back_one_by_one_also_after_saving(show, profile, writing) -> None:
    async with show(size=(120, 40), source=writing("train")) as panel:
        await form(panel, profile)
        await find(panel, "train.epochs")
        await edit(panel, "5")
        await edit(panel, "6")
        await panel.press("u")
        await panel.until(lambda: panel.app.screen.form.value("stages.train.epochs").value == 5)
        await panel.press("w", "enter")
        await panel.until(lambda: "epochs = 5" in profile.read_text() and "not saved" not in panel.text())
        await panel.until(lambda: panel.app.screen.form is not None)
        await panel.press("u")
        await panel.until(lambda: panel.app.screen.form.value("stages.train.epochs").value == 3)
        assert "1 not saved" in panel.text()
        await panel.press("u")
        assert "no edit to take back" in panel.app.message[0]


async def test_a_faulty_value_is_told_beside_its_key_and_not_saved(show, profile, writing) -> None:
    async with show(size=(120, 40), source=writing("train")) as panel:
        await form(panel, profile)
        await find(panel, "train.epochs")
        await edit(panel, "zero")
        told = panel.text()
        assert "1 to correct" in told and "✕" in told and "profile_value_invalid" in told
        await panel.press("w")
        assert "cannot save: stages.train.epochs" in panel.app.message[0]
        assert not any(isinstance(one, WriteProfile) for one in panel.source.commands)


async def test_a_key_goes_back_to_its_default(show, profile, writing) -> None:
    async with show(size=(120, 40), source=writing("train")) as panel:
        await form(panel, profile)
        await find(panel, "train.epochs")
        await panel.press("D")
        await panel.until(lambda: not panel.app.screen.form.value("stages.train.epochs").written)
        await panel.press("D")
        assert "the default already" in panel.app.message[0]
        await panel.press("w", "enter")
        await panel.until(lambda: "epochs" not in profile.read_text())
        assert profile.read_text().startswith("# Ours.\n[host]")


async def test_a_file_that_somebody_else_changed_is_not_overwritten(show, profile, writing) -> None:
    async with show(size=(120, 40), source=writing("train")) as panel:
        await form(panel, profile)
        await find(panel, "train.epochs")
        await edit(panel, "5")
        profile.write_text(TEXT + "# theirs\n")
        await panel.press("w", "enter")
        await panel.until(lambda: "profile_changed_meanwhile" in panel.text())
        assert profile.read_text().endswith("# theirs\n")


async def test_leaving_with_edits_asks(show, profile) -> None:
    async with show("train", (120, 40)) as panel:
        await form(panel, profile)
        await edit(panel, "box")
        await panel.press("escape")
        await panel.until(lambda: "One edit is not saved" in panel.text())
        await panel.press("escape")
        assert "not saved" in panel.lines()[1]
        await panel.press("escape", "enter")
        await panel.settle()
        assert isinstance(panel.app.screen, Dashboard)


async def test_only_what_is_no_default_can_be_shown(show, profile) -> None:
    async with show("train", (120, 40)) as panel:
        await form(panel, profile)
        await panel.press("equals_sign")
        shown = [line for line in panel.lines() if "┃" in line and "default" not in line]
        assert sum("host." in line for line in shown) == 1


async def test_the_filter_goes_by_names_first_and_hides_no_fault(show, profile) -> None:
    async with show("train", (120, 40)) as panel:
        await form(panel, profile)
        await edit(panel, "box")
        await find(panel, "jump")
        assert "host.jump" in panel.text() and "host.address" not in panel.text()
        await find(panel, "train.epochs")
        await edit(panel, "none")
        await find(panel, "own python code")
        told = panel.text()
        assert "target.trust_remote_code" in told, "its meaning has the words"
        assert "train.epochs" in told and "host.jump" not in told


async def test_a_form_to_look_at_only_takes_no_edit(show, profile) -> None:
    async with show("train", (120, 40), readonly=True) as panel:
        await form(panel, profile)
        for key in ("i", "D", "w"):
            await panel.press(key)
            assert "--readonly" in panel.app.message[0]


async def test_a_profile_that_cannot_be_read_is_told(show, tmp_path) -> None:
    async with show("train", (120, 40)) as panel:
        panel.app.open_profile(tmp_path / "gone.toml")
        await panel.press("c")
        await panel.until(lambda: "cannot be read" in panel.text())


async def test_a_shipped_profile_is_copied_to_the_users_own(show, profile, tmp_path, monkeypatch, writing) -> None:
    monkeypatch.setattr("eagle3_tui.places.shipped_profiles", lambda: profile.parent)
    monkeypatch.setattr("eagle3_tui.places.user_profiles", lambda: tmp_path / "own")
    profile.write_text(TEXT + '[stages.prompts]\nfiles = ["p/a.jsonl"]\n')
    async with show(size=(120, 40), source=writing("train")) as panel:
        await form(panel, profile)
        await find(panel, "train.epochs")
        await edit(panel, "5")
        await panel.press("w")
        await panel.until(lambda: "own copy of it" in panel.text())
        await panel.press("enter")
        own = tmp_path / "own" / "mine.toml"
        await panel.until(own.exists)
        await panel.settle()
        assert f'files = ["{profile.parent}/p/a.jsonl"]' in own.read_text() and "epochs = 5 # passes" in own.read_text()
        assert panel.app.opened.profile == own and "epochs = 3" in profile.read_text()


async def test_two_benches_stand_side_by_side_with_what_each_figure_is(show) -> None:
    async with show("done", (120, 40)) as panel:
        await panel.press("B")
        await panel.settle()
        told = panel.text()
        assert "A  51c0d2e4, 2025-11-29 13:42, of the profile as it is" in told and "B  9b1f6a20" in told
        assert "! not measured alike: max_new_tokens differ" in told
        assert "2.31 (2.26 to 2.38)" in told and "2.15 estimated" in told
        await panel.press(*["down"] * 6)
        assert "Acceptance length: tokens a verify step" in panel.text()
        await panel.press("left_square_bracket")
        assert "B  9b1f6a20" in panel.text()
        await panel.press("B")
        assert isinstance(panel.app.screen, Dashboard)


async def test_speeds_stand_by_load_with_what_follows_from_them_and_are_saved_as_a_report(show) -> None:
    async with show("done", (120, 40)) as panel:
        await panel.press("B")
        await panel.settle()
        await panel.press("]")
        assert "8 in flight: off; every measured depth loses" in panel.text()
        await panel.press("down")
        detail = panel.app.screen.query_one("Detail").text_to_copy()
        assert "verify steps" in detail and "A drafter of your own? With 1 request in flight: yes" in detail
        files = panel.app.screen.query_one("TablePane").save_files()
        assert set(files) == {"table.tsv", "bench.md", "bench.json", "bench.svg"}
        assert "mine, depth 3" in files["bench.svg"] and "## Recipe" in files["bench.md"]
        await panel.press("]")
        assert "recommended depth" in panel.text()


def served(load: int, rate: float) -> dict:
    """A row of what `bench --endpoint --json` writes."""
    length = {"mean": 2.05, "low": 1.91, "high": 2.2, "over": "40 answers", "steps": 611, "depth": 4,
              "by_position": [0.61, 0.44], "by_position_intervals": [[0.55, 0.67], [0.38, 0.5]]}  # fmt: skip
    return {"way": "served", "depth": 4, "concurrency": load, "in_flight": 0.97 * load, "tokens_per_second": rate,
            "acceptance_length": length}  # fmt: skip


def served_bench(path: Path, **values: object) -> Path:
    """A file with the result of a bench of a running server."""
    cells = [served(1, 201.0), served(8, 950.0)]
    recipe = {"engine": "sglang", "model": "q", "depth": 4, "max_new_tokens": 64}
    length = {"published": cells[0]["acceptance_length"]}
    answer = {"endpoint": "http://box:30000", "engine": {"name": "sglang", "version": "0.5.23"}, "cells": cells}
    path.write_text(json.dumps({**answer, "acceptance_length": length, "recipe": recipe, "findings": [], **values}))
    return path


async def test_the_bench_of_a_running_server_stands_beside_those_of_the_campaign(show, tmp_path) -> None:
    traffic = warning("endpoint_other_traffic", "Others were served.", path="endpoint").to_json()
    file = served_bench(tmp_path / "box.json", findings=[traffic])
    async with show("done", (120, 40)) as panel:
        await panel.press("B", "f")
        panel.app.screen.query_one("Input").value = str(file)
        await panel.press("enter")
        await panel.until(lambda: "B  box.json, http://box:30000, sglang 0.5.23" in panel.text())
        assert "! B  endpoint_other_traffic" in panel.text() and "51c0d2e4" in panel.text()
        assert "0.61 (0.55 to 0.67) 0.44 (0.38 to 0.50)" in panel.text()
        await panel.press("]")
        told = panel.lines()
        rows = [line for line in told if "served, depth 4" in line or "mine, depth 3" in line]
        assert [line.split("load")[0].split()[1] for line in rows] == ["A", "B", "A", "B"] and "201" in rows[1]
        await panel.press("[")
        assert "B  9b1f6a20" in panel.text()
        await panel.press("escape", "B")
        await panel.settle()
        await panel.press("[")
        assert "B  box.json" in panel.text(), "it stays known while the panel is open"
        panel.app.screen.results.insert(0, panel.app.screen.results[1])
        panel.app.screen.redraw()
        await panel.settle()
        assert "B  box.json" in panel.text(), "and beside when the campaign has one more"


async def test_a_file_without_a_bench_is_refused_and_without_a_campaigns_bench_a_file_stands_alone(
    show, tmp_path
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"findings": []}')
    async with show("train", (80, 24)) as panel:
        await panel.press("B")
        await panel.settle()
        panel.app.screen.open_bench(str(bad))
        await panel.until(lambda: "bench_file_invalid" in panel.text())
        await panel.press("escape")
        await run_line(panel.app, f"open-bench {served_bench(tmp_path / 'box.json')}")
        await panel.until(lambda: "box.json, http://box:30000" in panel.text())
        await panel.press("[")
        assert "there is no other bench" in panel.app.message[0]


async def test_without_a_bench_it_is_said_how_to_get_one(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press("B")
        await panel.settle()
        assert "no bench of this campaign is done yet; s runs it" in panel.text()
        await panel.press("left_square_bracket")
        assert "there is no other bench" in panel.app.message[0]
        await panel.press("s")
        await panel.settle()
        assert "through" in panel.text() and "bench" in panel.text()


async def test_a_host_that_does_not_answer_has_no_benches_but_trouble(show) -> None:
    class Deaf(MockSource):
        def _act(self, command):
            if isinstance(command, Results | DryRun | Endpoint):
                raise FindingError(error("ssh_connection_lost", "There is no link to h200-a."))
            return super()._act(command)

    async with show(source=Deaf("done")) as panel:
        await panel.press("B")
        await panel.settle()
        assert "There is no link to h200-a." in panel.text() and "no bench" not in panel.text()
        await panel.press("v")
        await panel.settle()
        assert panel.text().count("There is no link to h200-a.") == 2


async def test_results_are_asked_for_again_when_a_bench_has_ended(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press("B")
        await panel.settle()
        before = panel.source.commands.count(Results("bench"))
        panel.source.scene = "done"
        await panel.pass_time(1)
        assert panel.source.commands.count(Results("bench")) == before + 1
        assert "2.31 (2.26 to 2.38)" in panel.text()


async def test_the_service_shows_what_would_be_launched_and_why(show) -> None:
    async with show("failed", (120, 40)) as panel:
        await panel.press("v")
        await panel.settle()
        told = panel.text()
        assert "--max-model-len 2048" in told and "the stage's context parameter, tokens" in told
        assert '"num_speculative_tokens":3' in told.replace("│\n┃", "")
        assert "disk_forecast_near" in told and "no service is running" in told
        await panel.press("tab", "y")
        assert "copied" in panel.app.message[0]


async def test_a_running_service_shows_address_health_and_acceptance_with_its_formula(show) -> None:
    async with show("done", (120, 40)) as panel:
        await panel.press("v", "s", "enter")
        await panel.settle()
        await panel.pass_time(6)
        assert Start("serve") in panel.source.commands and Endpoint() in panel.source.commands
        told = panel.text()
        assert "● running  ready" in told and "http://127.0.0.1:41873/v1  model target" in told
        assert "length 2.31 = 1 + 4087 accepted / 3120 drafts" in told and " 1 0.62 ███" in told
        assert "acceptance length = 1 + accepted / drafts" in told and "Engine: loading weights" in told
        assert "made-up" not in told, "the key is only copied"
        await panel.press("x", "enter", "x")
        assert Stop("serve") in panel.source.commands
        await panel.pass_time(1)
        assert "http://127.0.0.1:41873" not in panel.text()


async def test_the_address_waits_until_the_service_is_ready(show) -> None:
    async with show("done", (120, 40)) as panel:
        await panel.press("v", "s", "enter")
        await panel.settle()
        picture = panel.source.snapshot()
        early = tuple(event for event in picture.events if event.data.get("state") != "ready")
        waiting = replace(picture, version=900, events=early)
        panel.source.snapshot = lambda: waiting
        before = panel.source.commands.count(Endpoint())
        await panel.pass_time(1)
        assert "not ready yet" in panel.text()
        assert panel.source.commands.count(Endpoint()) == before


async def test_a_lost_link_ages_what_is_shown(show) -> None:
    async with show("done", (120, 40)) as panel:
        await panel.press("v", "s", "enter")
        await panel.settle()
        picture = panel.source.snapshot()
        stages = tuple(
            replace(view, state=RunState.UNKNOWN, last_state=RunState.RUNNING, as_of=panel.clock.now)
            if view.name == "serve" else view
            for view in picture.stages
        )  # fmt: skip
        host = replace(picture.host, link=LinkState.RECONNECTING, data_at=panel.clock.now)
        lost = replace(picture, version=900, stages=stages, host=host)
        panel.source.snapshot = lambda: lost
        await panel.pass_time(41)
        assert "as of 41s ago" in panel.lines()[1] and "running, as of 41s ago" in panel.text()
        assert "there is no link; the service goes on on its host" in panel.text()
        assert "when it was seen last" in panel.text() and "requests running" not in panel.text()


NASTY = [
    "[/] [bold]x[/]",
    "\x1b[2J\x1b]52;c;aGk=\x07",
    "日本語" * 40,
    "e" + "\u0301" * 300,
    "\u202egnp.exe",
    "",
    "x" * 5000,
]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
async def test_remote_text_and_values_are_only_text(show, profile, text, tmp_path) -> None:
    class Nasty(MockSource):
        def _act(self, command):
            if isinstance(command, Results):
                summary = {"recipe": {text: text}, "acceptance_length": {text: {"mean": 2.0}}, "engine": {"name": text},
                           "recommended_because": text, "verdict": text, "controls": {text: text}}  # fmt: skip
                entry = {"fingerprint": text, "planned": True, "ended": None, "inputs": {"bench": text}}
                return {"artifacts": [{**entry, "summary": summary}]}
            if isinstance(command, DryRun):
                found = error(text, text, path=text, expected=text, actual={text: text}, fix=text)
                answer = super()._act(command)
                answer["stages"][0]["engine"]["reasons"]["--dtype"] = text
                answer["stages"][0]["inputs"]["drafter"] = text
                return {**answer, "findings": [found.to_json()]}
            return super()._act(command)

    from eagle3_tui.profileform import with_value

    profile.write_text(with_value(TEXT, "target.model", text or "m"))
    async with show(source=Nasty("done")) as panel:
        await panel.press("B")
        await panel.settle()
        assert {cell_len(line) for line in panel.lines()} == {120}
        await panel.press("escape", "v")
        await panel.settle()
        assert "Launch line" in panel.text()
        await panel.press("escape")
        await form(panel, profile)
        assert "mine.toml" in panel.text() and "\x1b" not in panel.text()


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x60"])
async def test_the_screens_look_as_they_did(show, profile, compare, size) -> None:
    columns, rows = map(int, size.split("x"))
    async with show("done", (columns, rows)) as panel:
        await form(panel, profile)
        await panel.pass_time(6)
        await edit(panel, "box")
        compare(f"config-{size}", panel.lines())
        await panel.press("u")
        await panel.until(lambda: not panel.app.screen.form.edits)
        await panel.press("escape", "B")
        await panel.settle()
        compare(f"results-{size}", panel.lines())
        await panel.press("]")
        compare(f"speeds-{size}", panel.lines())
        await panel.press("v", "s", "enter")
        await panel.settle()
        await panel.pass_time(6)
        compare(f"serve-{size}", panel.lines())


async def test_the_screens_in_ascii_and_without_colour_look_as_they_did(show, profile, compare, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with show("failed", (80, 24), ascii_only=True) as panel:
        await form(panel, profile)
        await panel.pass_time(6)
        await find(panel, "train.epochs")
        await edit(panel, "0")
        compare("config-ascii-80x24", panel.lines())
        await panel.press("u")
        await panel.until(lambda: not panel.app.screen.form.edits)
        await panel.press("escape", "escape", "v")
        await panel.settle()
        compare("serve-ascii-80x24", panel.lines())
        assert all(line.isascii() for line in panel.lines())
