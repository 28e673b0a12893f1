"""The serve screen's own acts: talking, swapping, a second endpoint, and options that are edited and kept."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from eagle3_backend.control.commands import DryRun, Open, Services, Start, Stop, Swap, WriteProfile
from eagle3_backend.findings import FindingError, error
from eagle3_tui.mock import MockSource
from eagle3_tui.mockserving import MockTalk
from eagle3_tui.serveacts import edits_of, option_setting


async def serving(panel) -> None:
    await panel.press("v", "s", "enter")
    await panel.settle()
    await panel.pass_time(6)


async def typed(panel, text: str) -> None:
    await panel.until(lambda: panel.app.screen.query("#prompt Input"))
    panel.app.screen.query_one("#prompt Input").value = text
    await panel.press("enter")
    await panel.settle()


async def test_an_answer_of_the_endpoint_is_shown_with_its_speed_and_acceptance(show, monkeypatch) -> None:
    async with show("done", (120, 40)) as panel:
        await serving(panel)
        await panel.press("K")
        await panel.settle()
        await typed(panel, "why?")
        await panel.until(lambda: "87.5 tokens/s" in panel.text())
        told = panel.text()
        assert "> why?" in told and "You asked: why?" in told
        assert "12 tokens" in told and "first after 0.08 s, acceptance length 2.31, stop" in told
        assert "made-up" not in told, "the key is never shown"
        monkeypatch.setattr(MockTalk, "hold", True)
        await panel.press("enter")
        await typed(panel, "again")
        await panel.until(lambda: panel.text().count("You asked") == 2)
        await panel.press("escape")
        await panel.until(lambda: "cancelled" in panel.text())
        await panel.press("escape")
        assert panel.app.screen.context == "serve"


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (200, 60)])
async def test_a_talk_fits_every_size(show, size) -> None:
    async with show("done", size) as panel:
        await serving(panel)
        await panel.press("K")
        await panel.settle()
        await typed(panel, "why " * 40)
        await panel.until(lambda: "2.31" in panel.text())
        assert {len(line) for line in panel.lines()} == {size[0]}


async def test_a_talk_that_fails_says_why_and_looks_for_the_endpoint_before_the_next(show, monkeypatch) -> None:
    whole, asked = MockTalk.say, []

    def broken(self, messages, max_tokens):
        yield "hal"
        monkeypatch.setattr(MockTalk, "say", whole)
        raise FindingError(error("chat_broken_off", "The answer broke off: cut."))

    monkeypatch.setattr(MockTalk, "say", broken)
    async with show("done", (80, 24)) as panel:
        await serving(panel)
        await panel.press("K")
        await panel.settle()
        await typed(panel, "why?")
        await panel.until(lambda: "The answer broke off" in panel.text())
        talk = panel.app.source.talk
        monkeypatch.setattr(panel.app.source, "talk", lambda endpoint: asked.append(endpoint) or talk(endpoint))
        await panel.press("enter")
        await typed(panel, "and now?")
        await panel.until(lambda: panel.app.screen.turns[-1].told)
        assert len(asked) == 1 and not panel.app.screen.turns[-1].failed


async def test_without_an_endpoint_there_is_nothing_to_talk_to_or_to_swap(show) -> None:
    async with show("done", (120, 40)) as panel:
        await panel.press("v", "K")
        assert "no endpoint is ready" in panel.app.message[0]
        await panel.press("E")
        assert "no endpoint is at work" in panel.app.message[0]


async def test_a_swap_is_chosen_and_confirmed_and_its_setting_counts_from_then_on(show) -> None:
    async with show("done", (120, 40)) as panel:
        await serving(panel)
        await panel.press("E")
        await panel.settle()
        await panel.press(*"nested", "enter")
        await panel.settle()
        assert "serve.layout=nested" in panel.text() and "is stopped" in panel.text()
        await panel.press("enter")
        await panel.settle()
        assert Swap(("serve.layout=nested",), "qwen3-8b-serve-51c0") in panel.source.commands
        assert panel.app.opened.settings == ("serve.layout=nested",)


async def test_a_drafter_can_be_typed(show) -> None:
    async with show("done", (120, 40)) as panel:
        await serving(panel)
        await panel.press("E")
        await panel.settle()
        await panel.press(*"another", "enter")
        await panel.settle()
        await typed(panel, "/data/other")
        await panel.until(lambda: "export.adopt=/data/other" in panel.text())
        await panel.press("enter")
        await panel.settle()
        assert Swap(("export.adopt=/data/other",), "qwen3-8b-serve-51c0") in panel.source.commands


async def test_endpoints_beside_it_are_listed_started_and_ended(show) -> None:
    async with show("done", (120, 40)) as panel:
        await serving(panel)
        assert Services() in panel.source.commands
        assert "http://127.0.0.1:41999/v1  vllm nested depth 2 ready" in panel.text()
        await panel.press("A")
        await panel.settle()
        await panel.press("d", "e", "p", "t", "h", "space", "4", "enter")
        await panel.settle()
        opened = Open(Path("local.toml"), ("serve.depth=4",))
        assert panel.source.commands.index(opened) < len(panel.source.commands) - 1
        assert panel.source.commands[-1] == Start("serve") or Start("serve") in panel.source.commands
        await panel.press("O")
        await panel.settle()
        await panel.press("enter")
        await panel.settle()
        await panel.press("enter", "x")
        assert Stop("serve", "qwen3-8b-serve-9b1f") in panel.source.commands


async def test_an_option_is_edited_in_the_preview_and_written_with_the_comments_kept(show, tmp_path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text("# ours\n[stages.serve]\ndepth = 3 # as trained\n")
    async with show("done", (120, 40)) as panel:
        panel.app._open = Open(profile)
        await panel.press("v")
        await panel.settle()
        before = panel.source.commands.count(DryRun("serve"))
        await panel.press("i")
        await typed(panel, "--max-num-seqs 8")
        assert panel.source.commands.count(DryRun("serve")) > before
        assert "Edited here and not in the profile" in panel.text() and "--max-num-seqs=8" in panel.text()
        await panel.press("w")
        await panel.settle()
        await panel.press("enter")
        await panel.until(lambda: any(isinstance(one, WriteProfile) for one in panel.source.commands))
        (written,) = (one for one in panel.source.commands if isinstance(one, WriteProfile))
        assert tomllib.loads(written.text)["stages"]["serve"]["options"] == {"--max-num-seqs": 8}
        assert "# ours" in written.text and "# as trained" in written.text
        await panel.until(lambda: panel.app.opened.settings == ())
        await panel.press("w")
        assert "nothing was edited" in panel.app.message[0]


async def test_an_option_that_is_refused_changes_nothing(show) -> None:
    class Refusing(MockSource):
        def _act(self, command):
            if isinstance(command, Open) and command.settings:
                raise FindingError(error("option_managed", "--host cannot be set here: it is the fence."))
            return super()._act(command)

    async with show("done", (120, 40), source=Refusing("done")) as panel:
        await panel.press("v", "i")
        await typed(panel, "--host 0.0.0.0")
        assert "--host cannot be set here" in panel.text()
        await panel.press("escape")
        assert panel.app.opened.settings == ()


async def test_a_panel_to_look_only_swaps_and_edits_nothing(show) -> None:
    async with show("done", (120, 40), readonly=True) as panel:
        await panel.press("v", "E", "A", "O", "i", "w")
        acts = (Swap, Start, Stop, WriteProfile)
        assert not any(isinstance(command, acts) for command in panel.source.commands)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("--max-num-seqs 64", "serve.options.--max-num-seqs=64"),
        ("--max-num-seqs=64", "serve.options.--max-num-seqs=64"),
        ("--enforce-eager", "serve.options.--enforce-eager=true"),
        ("--speculative-config.kv_cache_dtype fp8", "serve.options.--speculative-config.kv_cache_dtype=fp8"),
        ("NCCL_DEBUG=INFO", "serve.options.NCCL_DEBUG=INFO"),
        ("NCCL_DEBUG", None),
        ("rm -rf /; x", "serve.options.rm=-rf /; x"),
        ("", None),
    ],
)
def test_a_typed_option_is_read(text, setting) -> None:
    assert option_setting(text) == setting


def test_the_later_of_two_edits_of_a_key_is_written() -> None:
    found = edits_of(["serve.options.--a.b=1", "serve.layout=nested", "serve.options.--a.b=2"])
    assert found == {("stages", "serve", "options", "--a.b"): 2, ("stages", "serve", "layout"): "nested"}
