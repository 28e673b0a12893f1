"""The profile in the operator's own editor, and a shell on the host: the terminal is lent, and nothing is lost."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3_backend.control.commands import Shell
from eagle3_backend.control.shells import argv_of
from eagle3_backend.profile import Host
from eagle3_tui import editing, lending
from eagle3_tui.app import Panel
from eagle3_tui.screens.config import ConfigScreen
from eagle3_tui.screens.dashboard import Dashboard
from eagle3_tui.screens.dialogs import ConfirmDialog, MessageDialog

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


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """An editor that does this to `text`, and may set `status`; the terminal of the tests can be lent."""
    monkeypatch.setattr(Panel, "suspend", lambda panel: contextlib.nullcontext())
    monkeypatch.setattr(editing.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("VISUAL", raising=False)

    def does(code: str) -> None:
        script = tmp_path / "editor.py"
        begin = "import sys; path = sys.argv[-1]; text = open(path, encoding='utf-8').read(); status = 0"
        end = "if text is not None: open(path, 'w', encoding='utf-8').write(text)"
        script.write_text(f"{begin}\n{code}\n{end}\nsys.exit(status)")
        monkeypatch.setenv("EDITOR", f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} --wait")

    return does


async def open_form(panel, profile: Path) -> ConfigScreen:
    panel.app.open_profile(profile)
    await panel.settle()
    await panel.press("c")
    screen = panel.app.screen
    await panel.until(lambda: screen.form is not None or screen.trouble)
    return screen


def drafts(tmp_path: Path) -> list[str]:
    """What editors wrote and nobody took over."""
    return [path.read_text() for path in sorted(tmp_path.glob("eagle3-*/*.toml"))]


async def test_what_the_editor_changed_is_an_edit_that_is_checked_and_saved(
    show, profile, editor, tmp_path, writing
) -> None:
    editor("text = text.replace('epochs = 3', 'epochs = 5')")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        await panel.until(lambda: screen.form.edits)
        assert [(value.field.name, value.value) for value in screen.form.edits] == [("train.epochs", 5)]
        assert profile.read_text() == TEXT and drafts(tmp_path) == []
        await panel.press("w", "enter")
        await panel.until(lambda: "epochs = 5 # passes" in profile.read_text())


async def test_an_edit_in_the_editor_is_taken_back_like_any_other(show, profile, editor, writing) -> None:
    editor("text = text.replace('epochs = 3', 'epochs = 5')")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        await panel.until(lambda: screen.form.edits)
        await panel.press("u")
        await panel.until(lambda: not screen.form.edits)
        assert screen.form.text == TEXT


async def test_a_faulty_value_shows_its_finding_beside_its_key(show, profile, editor, writing) -> None:
    editor("text = text.replace('epochs = 3', 'epochz = 3')")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        await panel.until(lambda: isinstance(panel.app.screen, MessageDialog))
        assert "To correct before it is saved" in panel.text() and "epochz" in panel.text()
        await panel.press("escape")
        assert screen.form.value("stages.train.epochz").findings
        await panel.press("w")
        assert profile.read_text() == TEXT and "cannot save" in panel.lines()[-1]


async def test_text_that_is_no_toml_is_kept_and_gone_on_with(show, profile, editor, tmp_path, writing) -> None:
    editor("text = text.replace('epochs = 3', 'epochs = [')")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        await panel.until(lambda: isinstance(panel.app.screen, MessageDialog))
        assert "Not taken over" in panel.text() and "profile_invalid" in panel.text()
        [kept] = drafts(tmp_path)
        assert "epochs = [" in kept and screen.form.text == TEXT
        await panel.press("escape", "q")
        assert isinstance(panel.app.screen, ConfirmDialog) and "is not taken over yet" in panel.text()
        await panel.press("escape")
        editor("text = text.replace('epochs = [', 'epochs = 7')")
        await panel.press("E")
        await panel.until(lambda: screen.form.edits)
        assert screen.form.edits[0].value == 7


async def test_a_draft_can_be_dropped(show, profile, editor, writing) -> None:
    editor("text = '= broken'")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        await panel.until(lambda: isinstance(panel.app.screen, MessageDialog))
        await panel.press("escape", "u")
        assert screen.unsaved == ""


async def test_a_profile_that_is_broken_on_disk_is_mended_with_the_editor(show, profile, editor, writing) -> None:
    profile.write_text(TEXT.replace("epochs = 3", "epochs = "))
    editor("text = text.replace('epochs = ', 'epochs = 4')")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        assert screen.form is None
        await panel.press("E")
        await panel.until(lambda: screen.form is not None)
        await panel.press("w", "enter")
        await panel.until(lambda: "epochs = 4" in profile.read_text())


@pytest.mark.parametrize(
    ("code", "code_of_finding", "kept"),
    [
        ("status = 1", "editor_failed", 0),
        ("text, status = 'lost?', 3", "editor_failed", 1),
        ("import os; os.kill(os.getpid(), 9)", "editor_failed", 0),
        ("import os; os.remove(path); text = None", "draft_unreadable", 0),
        ("open(path, 'wb').write(b'\\xff\\xfe'); text = None", "draft_unreadable", 0),
    ],
)
async def test_an_editor_that_fails_is_a_finding_and_nothing_is_lost(
    show, profile, editor, tmp_path, code, code_of_finding, kept, writing
) -> None:
    editor(code)
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        assert code_of_finding in panel.text() and "Not edited" in panel.text()
        assert screen.form.text == TEXT and profile.read_text() == TEXT
        readable = [path for path in tmp_path.glob("eagle3-*/*.toml") if b"\xff" not in path.read_bytes()]
        assert len(readable) == kept


@pytest.mark.parametrize("named", ["/no/such/editor", "no-such-editor-at-all --wait", "'unclosed"])
async def test_an_editor_that_is_not_there_is_a_finding(show, profile, editor, monkeypatch, named, writing) -> None:
    monkeypatch.setenv("VISUAL", named)
    async with show(source=writing()) as panel:
        await open_form(panel, profile)
        await panel.press("E")
        assert "editor_missing" in panel.text()


async def test_an_editor_that_changes_nothing_makes_no_edit(show, profile, editor, tmp_path, writing) -> None:
    editor("")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        assert "the editor changed nothing" in panel.lines()[-1]
        assert not screen.unsaved and drafts(tmp_path) == []


async def test_a_terminal_that_cannot_be_lent_is_a_finding(show, profile, editor, monkeypatch, writing) -> None:
    editor("")
    monkeypatch.undo()
    monkeypatch.setenv("EDITOR", "cat")
    async with show(source=writing()) as panel:
        await open_form(panel, profile)
        await panel.press("E")
        assert "cannot be lent" in " ".join(panel.text().split())


async def test_comments_alone_are_a_change_that_is_asked_about(show, profile, editor, writing) -> None:
    editor("text = text.replace('# Ours.', '# Yours.')")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        await panel.until(lambda: screen.unsaved)
        await panel.press("q")
        assert isinstance(panel.app.screen, ConfirmDialog) and "Comments or spelling" in panel.text()


async def test_readonly_lends_no_terminal(show, profile, editor, writing) -> None:
    editor("text = 'x'")
    async with show(source=writing(), readonly=True) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        assert "--readonly" in panel.lines()[-1] and screen.form.text == TEXT
        await panel.press("exclamation_mark")
        assert "--readonly" in panel.lines()[-1]
        assert not [one for one in panel.source.commands if isinstance(one, Shell)]


async def test_leaving_the_panel_with_unsaved_edits_asks(show, profile, editor, writing) -> None:
    editor("text = text.replace('epochs = 3', 'epochs = 5')")
    async with show(source=writing()) as panel:
        screen = await open_form(panel, profile)
        await panel.press("E")
        await panel.until(lambda: screen.form.edits)
        await panel.press("t", "q")
        assert "One edit is not saved" in panel.text() and panel.app.is_running
        await panel.press("escape")
        assert panel.app.return_code is None and screen.form.edits
        await panel.press("q", "enter")
        assert panel.app._exit


async def test_a_shell_begins_where_the_stage_runs(show, editor, monkeypatch) -> None:
    lent: list[list[str]] = []
    monkeypatch.setattr(lending, "lend", lambda panel, argv: lent.append(argv) or "")
    async with show() as panel:
        await panel.press("exclamation_mark")
        assert panel.source.commands[-1] == Shell("train") and lent[0][0] == "/bin/sh"
        assert isinstance(panel.app.screen, Dashboard)


async def test_a_shell_that_fails_is_told(show, editor, monkeypatch) -> None:
    monkeypatch.setattr(lending, "lend", lambda panel, argv: "ssh ended with 255")
    async with show() as panel:
        await panel.press("exclamation_mark")
        assert "ssh ended with 255" in panel.lines()[-1]


async def test_an_interrupt_for_the_other_program_is_not_ours(show) -> None:
    async with show() as panel:
        panel.app.lent = True
        panel.app._leave_by_signal(None, 130)
        assert not panel.app._exit
        panel.app.take_back_terminal()
        panel.app._leave_by_signal(None, 130)
        assert panel.app._exit


@pytest.mark.parametrize(
    ("host", "argv"),
    [
        (Host(address="h200-a"), ["ssh", "-t", "--", "h200-a"]),
        (
            Host(address="-oProxyCommand=x", user="ana", port=2222, jump="gate", identity="/k"),
            ["ssh", "-t", "-l", "ana", "-p", "2222", "-J", "gate", "-i", "/k", "--", "-oProxyCommand=x"],
        ),
        (Host(transport=["docker", "exec", "-i", "box"]), ["docker", "exec", "-i", "box", "sh", "-c"]),
    ],
)
def test_each_kind_of_host_has_its_way_to_a_shell(host, argv) -> None:
    *made, command = argv_of(host, "/data/it's here")
    assert made == argv and command.startswith("cd '/data/it'\"'\"'s here' && exec ")


def test_a_shell_without_a_known_directory_begins_at_home() -> None:
    assert argv_of(Host(address="embedded"), "")[-1] == 'exec "${SHELL:-/bin/sh}" -l'
