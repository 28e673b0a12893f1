"""The command line and the palette: both run actions of the key table, by id and by choice."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from eagle3_backend.control.snapshot import StageView
from eagle3_tui.keymap import CONTEXTS, Key, in_scope, names_of
from eagle3_tui.places import profiles_by_name
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.text import clean

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

ALIASES = {"run": "start", "q": "quit", "diff": "compare", "charts": "zoom"}
"""Words that people type for an id of the table."""

GOES_TO = {"host": "go_to_host", "campaign": "go_to_campaign"}
"""Ids that take a name instead of a stage, and what of the panel goes there."""

OPENS = {"open_bench": "open_bench"}
"""Ids that take a path, and what of the screen opens it."""

HIDDEN = frozenset({"command", "palette", "back", "interrupt", "leave_line"})


def known(panel: Panel) -> list[Key]:
    """What can be done where the panel is now."""
    screen = panel.screen
    context = screen.context if isinstance(screen, PanelScreen) else "all"
    keys = in_scope(*CONTEXTS.get(context, ("all",)))
    return [key for key in keys if key.group != "Move" and key.id not in HIDDEN]


async def perform(panel: Panel, key: Key) -> None:
    """Do what the key would do: on the focused pane, on its screen, or on the panel."""
    name = "action_" + (key.action or key.id).rpartition(".")[2]
    screen = panel.screen
    nodes = [*screen.focused.ancestors_with_self] if screen.focused is not None else [screen]
    for node in (*nodes, panel):
        method = getattr(node, name, None)
        if method is not None:
            outcome = method()
            if inspect.isawaitable(outcome):
                await outcome
            return


async def run_line(panel: Panel, text: str) -> None:
    """``text`` is an id of the table or an alias, and for an act its stage: ``run train``."""
    words = text.strip().lstrip(":").split()
    if not words:
        return
    name = ALIASES.get(words[0], words[0]).replace("-", "_")
    key = next((key for key in known(panel) if key.id == name), None)
    if key is None:
        panel.notice(f"there is no :{clean(words[0], 40)} here; ctrl+p lists what there is", "warn")
        return
    if len(words) > 1 and name in GOES_TO:
        getattr(panel, GOES_TO[name])(" ".join(words[1:]))
        return
    if len(words) > 1 and name in OPENS:
        getattr(panel.screen, OPENS[name])(text.strip().lstrip(":").partition(" ")[2].strip())
        return
    if len(words) > 1 and not _choose_stage(panel, words[1]):
        panel.notice(f"there is no stage '{clean(words[1], 40)}' here", "warn")
        return
    await perform(panel, key)


def _choose_stage(panel: Panel, name: str) -> bool:
    view: StageView | None = panel.picture.stage(name)
    choose = getattr(panel.screen, "choose_stage", None)
    if view is None or choose is None:
        return False
    choose(name)
    return True


def completions(panel: Panel) -> list[str]:
    """What a command line may begin with."""
    stages = [view.name for view in panel.picture.stages]
    words = []
    for key in known(panel):
        words.append(key.id.replace("_", "-"))
        if key.scope == "run":
            words += [f"{key.id} {stage}" for stage in stages]
    words += [f"campaign {name}" for name in profiles_by_name()]
    return sorted([*words, *(f"run {stage}" for stage in stages)])


def open_palette(panel: Panel) -> None:
    """Choose one of all actions that work here."""
    from eagle3_tui.screens.choose import Choice, ChooseDialog

    keys = {key.id: key for key in known(panel)}
    choices = [
        Choice(key.id, key.id.replace("_", " "), f"{names_of(key, panel.look.ascii_only):<7} {key.about}")
        for key in keys.values()
    ]

    def chosen(name: str | None) -> None:
        if name is not None:
            # Once the dialog is gone and the pane that it hid has the focus again.
            panel.call_after_refresh(perform, panel, keys[name])

    panel.push_screen(ChooseDialog("Do", choices), chosen)
