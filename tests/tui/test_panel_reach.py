"""Every pane's keys are those of the table, its help has them all, and no pane needs a mouse."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from textual.widgets import Input

import eagle3_tui
from eagle3_tui.keymap import CONTEXTS, KEYS, in_scope, names_of
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.screens.help import Help, HelpScreen

WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pipeline": ("train", ()),
    "log": ("train", ("tab",)),
    "stage": ("train", ("enter",)),
    "stage log": ("train", ("enter", "tab")),
    "chart": ("train", ("z",)),
    "rows": ("train", ("m",)),
    "events": ("train", ("e",)),
    "hosts": ("train", ("t",)),
    "orphans": ("failed", ("o",)),
    "config": ("train", ("c",)),
    "results": ("done", ("B",)),
    "trace": ("done", ("W",)),
    "serve": ("train", ("v",)),
    "help": ("train", ("question_mark",)),
}
"""The scene and the keys that lead to each pane."""

DIALOGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "line": ("train", ("colon",)),
    "choose dialog": ("train", ("ctrl+p",)),
    "pick dialog": ("train", ("d",)),
    "start dialog": ("refused", ("s",)),
    "stop dialog": ("train", ("x",)),
    "host key dialog": ("key_unknown", ()),
    "message dialog": ("key_changed", ()),
}

OF_TEXTUAL = {"super+c", "ctrl+pageup", "ctrl+pagedown"}
"""What its widgets bind besides; no terminal of ours has to send these."""

ABOVE_ALL = {"ctrl+c"}


def bound(panel) -> dict[str, str]:
    """Key to action, of all that works now and is no editing in a field."""
    active = panel.app.screen.active_bindings.items()
    return {key: one.binding.action for key, one in active if not isinstance(one.node, Input) and key not in OF_TEXTUAL}


def bare(action: str) -> str:
    return action.rpartition(".")[2].partition("(")[0]


@pytest.mark.parametrize("context", WAYS)
async def test_a_pane_has_the_keys_of_the_table_and_no_others(show, context) -> None:
    scene, keys = WAYS[context]
    async with show(scene) as panel:
        await panel.press(*keys)
        assert panel.app.screen.context == context
        table = {one: bare(key.action or key.id) for key in in_scope(*CONTEXTS[context]) for one in key.keys}
        assert {key: bare(action) for key, action in bound(panel).items()} == table


@pytest.mark.parametrize("context", DIALOGS)
async def test_a_dialog_owns_its_keys_and_only_ctrl_c_goes_past_it(show, context) -> None:
    scene, keys = DIALOGS[context]
    async with show(scene) as panel:
        await panel.press(*keys)
        dialog = not isinstance(panel.app.screen, PanelScreen)
        assert dialog or panel.app.screen.query("Prompt")
        table = {one for key in in_scope(*CONTEXTS[context]) for one in key.keys}
        taken = set(bound(panel))
        # A field takes the letters, and copies; what leaves works beside it.
        wanted = {"escape"} if panel.app.screen.query(Input) else table | ABOVE_ALL
        assert wanted - taken == set()
        if dialog:
            assert taken - table - ABOVE_ALL - {"tab", "shift+tab"} == set()


@pytest.mark.parametrize("context", CONTEXTS)
async def test_every_action_is_in_the_help_of_its_pane(show, context) -> None:
    async with show("train", (200, 60)) as panel:
        panel.app.push_screen(HelpScreen(context))
        await panel.settle()
        told = [" ".join(line.plain.split()) for line in panel.app.screen.query_one(Help).all_lines(190)]
        missing = [
            key.id
            for key in in_scope(*CONTEXTS[context])
            if not any(line.startswith(f"{names_of(key) or ':' + key.id} {key.about}") for line in told)
        ]
        assert missing == []


def test_every_action_has_a_key_or_a_word() -> None:
    """What has no key is done by `:` and the palette, which offer what works everywhere."""
    assert [key.id for key in KEYS if not key.keys and key.scope != "all"] == []


@pytest.mark.parametrize("context", ["pipeline", "stage", "rows", "hosts", "config", "serve", "results", "events"])
async def test_tab_leads_through_every_pane_that_holds_the_focus_and_back(show, context) -> None:
    scene, keys = WAYS[context]
    async with show(scene, (120, 40)) as panel:
        await panel.press(*keys)
        screen = panel.app.screen
        first, panes = screen.focused, set(screen.focus_chain)
        seen = [first]
        for _ in range(len(panes)):
            await panel.press("tab")
            seen.append(screen.focused)
        assert set(seen) == panes and seen[-1] is first
        for pane in panes:
            assert pane.region and pane.can_focus, pane


async def test_every_screen_that_a_key_opens_is_left_by_esc(show) -> None:
    async with show("failed") as panel:
        for key in KEYS:
            if key.group != "Screens" or key.id in ("host", "campaign") or not key.keys:
                continue
            await panel.press(key.keys[0])
            assert len(panel.app.screen_stack) == 2, key.id
            await panel.press("escape")
            assert len(panel.app.screen_stack) == 1, key.id


def test_nothing_of_ours_listens_to_a_mouse_alone() -> None:
    heard = []
    for path in Path(eagle3_tui.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "name", "")
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name.startswith(("on_click", "on_mouse")):
                heard.append(f"{path.name}:{name}")
    assert heard == []
