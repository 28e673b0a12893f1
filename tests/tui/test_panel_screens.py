"""The screens that can be opened from anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import Mount

from eagle3_backend.control.commands import AddHost, Doctor, EndOrphan, Locks, Open, Processes
from eagle3_backend.control.snapshot import Event
from eagle3_backend.findings import FindingError, error, warning
from eagle3_tui.mock import MockSource
from eagle3_tui.screens.dashboard import Dashboard
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.table import Table

VISITS = {"t": "Hosts", "m": "GPUs", "e": "Events", "o": "Orphans"}


async def visit(panel, key: str) -> None:
    await panel.press(key)
    await panel.settle()


async def command(panel, text: str) -> None:
    await panel.press("colon")
    await panel.settle()
    panel.app.screen.query_one("#prompt Input").value = text
    await panel.press("enter")
    await panel.settle()
    await panel.settle()


@pytest.mark.parametrize(("key", "title"), VISITS.items())
async def test_a_key_opens_a_screen_and_closes_it(show, key, title) -> None:
    async with show("train", (120, 40)) as panel:
        await visit(panel, key)
        assert isinstance(panel.app.screen, TableScreen) and f"━ {title}" in panel.text()
        await visit(panel, key)
        assert isinstance(panel.app.screen, Dashboard)
        await visit(panel, key)
        await panel.press("escape")
        assert isinstance(panel.app.screen, Dashboard)


async def test_the_machine_tells_whose_processes_use_it(show) -> None:
    async with show("train", (120, 40)) as panel:
        await visit(panel, "m")
        told = panel.text()
        assert "qwen3-8b-train-51c0 attempt 1" in told and "bo " in told and "other" in told
        assert "cpu     43%" in told and "129 GB free" in told


async def test_the_machine_shows_what_gpus_and_processor_did_lately(show) -> None:
    class Busy(MockSource):
        def snapshot(self):
            shown = super().snapshot()
            points = tuple((float(at), 100.0 * (at % 2)) for at in range(200))
            gauges = {"gpu percent/0": points, "cpu percent": points, "memory GiB": points}
            return replace(shown, gauges=gauges)

    async with show(source=Busy(), size=(120, 40)) as panel:
        await visit(panel, "m")
        rows = {
            name: next(line for line in panel.lines() if f"┃ {name} " in line) for name in ("0", "1", "cpu", "memory")
        }
        assert all("█" in rows[name][60:] for name in ("0", "cpu", "memory")), rows
        assert "█" not in rows["1"][60:]


class Locked(MockSource):
    """Locks as ``answer`` has them; an exception refuses them."""

    def __init__(self, answer, scene: str = "train") -> None:
        super().__init__(scene)
        self.answer = answer

    def _act(self, command):
        if not isinstance(command, Locks):
            return super()._act(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"problem": None, **self.answer}


def lock(thing: str, kind: str = "gpu", run: str | None = "theirs", pids: tuple[int, ...] = (77,), **more):
    holders = [{"pid": pid, "command": f"work {pid}"} for pid in pids]
    return {"kind": kind, "thing": thing, "run": run, "user": "ana", "since": 1_764_415_324.0, "seconds": 75.0,
            "orphaned": False, "processes": holders, **more}  # fmt: skip


async def test_the_machine_tells_who_holds_its_locks_in_80x24(show) -> None:
    async with show("train", (80, 24)) as panel:
        await visit(panel, "m")
        await panel.press("home")
        row = next(line for line in panel.lines() if " lock " in line)
        assert " ana " in row and " 0-5 " in row and "qwen3-8b-train-51c0" in row
        told = panel.text()
        assert "GPU 0-5, output train/51c0d2e4; alive: 41188, 41200" in told
        assert "run qwen3-8b-train-51c0, ana, since 11-29 11:22:04 (02:40:07)" in told
        await panel.press("enter", "pagedown")
        assert "output  /data/eagle3/qwen3-8b/train/51c0d2e4" in panel.text()


async def test_orphans_tell_the_locks_that_what_is_left_holds_in_80x24(show) -> None:
    async with show("failed", (80, 24)) as panel:
        await visit(panel, "o")
        assert "Orphans · 1 attempt · 1 run holds locks" in panel.text()
        row = next(line for line in panel.lines() if " lock " in line)
        assert "qwen3-8b-train-51c0" in row and "2 alive" in row and "GPU 0-5, output train/51c0d2e4" in row
        await panel.press("down")
        assert "alive: 41233, 41290, no supervisor" in panel.text()
        before = len(panel.source.commands)
        await panel.press("X")
        assert EndOrphan("qwen3-8b-train-51c0", 1) not in panel.source.commands[before:]
    async with show("train", (80, 24)) as panel:
        await visit(panel, "o")
        assert "none: all is supervised" in panel.text() and "2 alive" in panel.text()


async def test_locks_of_unknown_things_and_holders_are_told_as_what_is_known(show) -> None:
    locks = [
        lock("GPU-0"), lock("GPU-2"), lock("GPU-3"), lock("GPU-3f2a9c1e-77", pids=()),
        lock("", "artifact", None, user=None, since=None, seconds=None), lock("/w/runs/r/1", "stop", "ours", (5,)),
        lock("/w/runs/s/2", "place", "next", (6,)),
    ]  # fmt: skip
    async with show(source=Locked({"locks": locks}), size=(200, 60)) as panel:
        await visit(panel, "m")
        told = panel.text()
        assert "GPU 0,2-3, for 00:01:15, 1 alive" in told and "GPU-3f2a9c1e, for 00:01:15, no process seen" in told
        assert "output that its file does not name, for -, 1 alive" in told and "stop of r/1" in told
        assert "place of s/2" in told
        await panel.press("slash", *"no process seen", "enter")
        await panel.press("home")
        assert "held, by no process that can be seen from here" in panel.text()


async def test_what_is_not_told_of_locks_is_said_beside_the_rows(show) -> None:
    partly = warning("locks_partly_seen", "Locks that processes outside of this container hold are not seen.")
    for answer, words in (
        ({"locks": [], "problem": partly.to_json()}, partly.message),
        (FindingError(error("odd", "It did not work.")), "It did not work."),
    ):
        for key in ("m", "o"):
            async with show(source=Locked(answer), size=(80, 24)) as panel:
                await visit(panel, key)
                assert f"locks: {words}"[:70] in panel.text()
                assert key == "o" or "41200" in panel.text()


async def test_processes_are_asked_for_again_while_they_are_seen(show) -> None:
    async with show("train", (120, 40)) as panel:
        await visit(panel, "m")
        before = panel.source.commands.count(Processes())
        await panel.pass_time(4)
        assert panel.source.commands.count(Processes()) == before + 1
        await panel.press("escape")
        await panel.pass_time(8)
        assert panel.source.commands.count(Processes()) == before + 1


async def test_a_question_that_is_refused_is_told_in_the_table(show) -> None:
    class Deaf(MockSource):
        def _act(self, command):
            if isinstance(command, Processes):
                raise FindingError(error("ssh_connection_lost", "There is no link to h200-a."))
            return super()._act(command)

    async with show(source=Deaf()) as panel:
        await visit(panel, "m")
        assert "There is no link to h200-a." in panel.text()


async def test_hosts_tell_the_link_and_offer_names_of_the_ssh_configuration(show) -> None:
    async with show("train", (120, 40)) as panel:
        await visit(panel, "t")
        told = panel.text()
        assert "● live 38ms" in told and "+0.2 s" in told and "437/1128G  8 x H200" in told
        assert "h100-b" in told and "in ~/.ssh/config" in told and "protocol 1, Python 3.11.9" in told


async def test_eight_hosts_with_eight_gpus_are_seen_at_once_and_each_in_full(show) -> None:
    async with show("train", (120, 40)) as panel:
        assert panel.app.picture.others == ()
        await visit(panel, "t")
        await panel.pass_time(1)
        told = panel.text()
        assert told.count("8 x H200") == 8 and "h200-h" in told
        assert "◐ reconnecting 41s, try 5" in told
        await panel.press("down", "down", "down")
        detail = panel.text().partition("Detail")[2]
        assert detail.count("  0% ░") == 8 and "75W" in detail and "enter writes a profile" not in detail
        await panel.press("down", "down", "down")
        assert "as of 41s ago" in panel.text()


async def test_enter_on_another_host_writes_a_profile_and_opens_it(show) -> None:
    async with show("train", (120, 40)) as panel:
        await visit(panel, "t")
        await panel.press("end", "enter")
        assert "Another host" in panel.text()
        await panel.press("enter")
        await panel.settle()
        added = next(one for one in panel.source.commands if isinstance(one, AddHost))
        assert added.name == "lab"
        assert panel.source.commands[-1] == Open(added.folder / "lab.toml")
        assert isinstance(panel.app.screen, Dashboard)


async def test_events_are_counted_until_they_were_looked_at_and_can_be_narrowed(show) -> None:
    async with show("train", (120, 40)) as panel:
        assert "Events · 6 new" in panel.text()
        await visit(panel, "e")
        assert "Events · 6 · 6 new" in panel.text()
        await panel.press("slash")
        await panel.settle()
        panel.app.screen.query_one("#prompt Input").value = "error lab"
        await panel.press("enter")
        await panel.settle()
        told = panel.text()
        assert "ssh_host_key_changed" in told and "checkpoint step_18300" not in told
        await panel.press("escape")
        assert "checkpoint step_18300" in panel.text()
        await panel.press("escape")
        assert "Events ─" in panel.text()


async def test_news_that_comes_while_a_screen_is_made_waits_for_it(show, monkeypatch) -> None:
    mounted = FooterBar._on_mount

    def with_news(footer: FooterBar, event: Mount) -> None:
        mounted(footer, event)
        footer.panel.source.snapshot = lambda: replace(footer.panel.picture, version=footer.panel.picture.version + 1)
        footer.panel.pull()

    async with show("train", (120, 40)) as panel:
        monkeypatch.setattr(FooterBar, "_on_mount", with_news)
        await panel.press("e")
        assert "Events · 6" in panel.text()


async def test_lines_of_a_log_draw_no_table_again_and_other_news_does(show, monkeypatch) -> None:
    async with show("train", (120, 40)) as panel:
        await visit(panel, "e")
        drawn: list[str] = []
        monkeypatch.setattr(type(panel.app.screen), "table", lambda screen: drawn.append("") or Table("drawn"))
        picture = panel.app.picture
        news = [
            replace(picture, version=900, log=replace(picture.log, bytes=picture.log.bytes + 80)),
            replace(picture, version=901, events=picture.events[:1]),
        ]
        for changed, times in zip(news, (0, 1), strict=True):
            panel.source.snapshot = lambda changed=changed: changed
            panel.clock.now += 0.5
            panel.app.pull()
            assert panel.app.picture is changed and len(drawn) == times


async def test_a_new_event_is_marked_on_the_dashboard(show) -> None:
    async with show("train", (120, 40)) as panel:
        await visit(panel, "e")
        await panel.press("escape")
        event = Event(panel.app.seen_events + 5, "train", "something new", "warning")
        changed = replace(panel.app.picture, version=900, events=(*panel.app.picture.events, event))
        panel.source.snapshot = lambda: changed
        await panel.pass_time(1)
        assert "Events · 1 new" in panel.text()


async def test_orphans_are_ended_by_typing_the_stage(show) -> None:
    async with show("failed", (120, 40)) as panel:
        await visit(panel, "o")
        assert "supervisor gone, 2 process(es) work on" in panel.text() and "41233" in panel.text()
        await panel.press("X")
        await panel.settle()
        await panel.press(*"serve", "enter")
        assert "'serve' is another name" in panel.text()
        panel.app.screen.query_one("Input").value = "train"
        await panel.press("enter")
        await panel.settle()
        assert EndOrphan("qwen3-8b-train-51c0", 1) in panel.source.commands


async def test_doctor_is_a_command_and_tells_what_is_wrong_first(show) -> None:
    async with show("train", (120, 40)) as panel:
        await command(panel, "doctor")
        assert Doctor() in panel.source.commands
        lines = panel.lines()
        assert "Doctor · 6 checks · 1 to look at" in lines[1] and "81 % of /data" in lines[3]
        assert "Delete artifacts that are out of date." in panel.text()


async def test_a_command_can_name_a_stage(show) -> None:
    async with show("refused", (120, 40)) as panel:
        await command(panel, "run evaluate")
        assert "▸ evaluate" in panel.text() and "will run" in panel.text()


@pytest.mark.parametrize(("text", "told"), [("nonsense", "there is no :nonsense here"), ("run nothing", "no stage")])
async def test_a_command_that_is_not_there_is_told(show, text, told) -> None:
    async with show("train", (120, 40)) as panel:
        await command(panel, text)
        assert told in panel.app.message[0]


async def test_tab_completes_a_command(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press("colon", *"doc")
        await panel.settle()
        await panel.press("tab", "enter")
        await panel.settle()
        await panel.settle()
        assert "━ Doctor" in panel.text()


async def test_the_palette_finds_an_action_by_its_words(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press("ctrl+p")
        await panel.settle()
        await panel.press(*"nobody supervises")
        await panel.press("enter")
        await panel.settle()
        await panel.settle()
        assert "━ Orphans" in panel.text()


async def test_readonly_turns_acting_keys_off(show) -> None:
    async with show("train", (120, 40), readonly=True) as panel:
        for key in ("s", "x", "u", "R"):
            await panel.press(key)
            assert isinstance(panel.app.screen, Dashboard) and "--readonly" in panel.app.message[0]
        await visit(panel, "t")
        await panel.press("end", "enter")
        assert "--readonly" in panel.app.message[0]


async def test_the_rate_bounds_redraws_and_can_pause_them(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press("P", "P", "P", "P", "P")
        assert "paused" in panel.app.message[0]
        version = panel.app.picture.version
        await panel.pass_time(3)
        assert panel.app.picture.version == version
        await panel.press("P")
        await panel.pass_time(1)
        assert panel.app.picture.version > version


async def test_the_screen_is_saved_as_picture_and_as_text(show, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("eagle3_tui.saving.saved_files", lambda: tmp_path)
    async with show("train", (80, 24)) as panel:
        await panel.press("S")
        names = sorted(Path(path).suffix for path in tmp_path.iterdir())
        assert names == [".svg", ".txt"]
        assert any("Pipeline" in path.read_text() for path in tmp_path.glob("*.txt"))


async def test_a_log_can_have_the_whole_screen(show) -> None:
    async with show("train", (120, 40)) as panel:
        await panel.press("l", "z")
        await panel.settle()
        assert "Pipeline" not in panel.text() and "Log · train" in panel.lines()[2]
        await panel.press("escape")
        await panel.settle()
        assert "Pipeline" in panel.text()
