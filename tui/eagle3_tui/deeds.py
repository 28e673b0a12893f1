"""What keys do that belong to no pane: lines and palettes, other screens, copies and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.app import App

from eagle3_backend.control.commands import Shell
from eagle3_tui.calling import has_clipboard
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.text import size
from eagle3_tui.theme import PALETTES, Look, palette_name
from eagle3_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from eagle3_tui.app import Panel

COPY_LIMIT = 1_000_000
"""Bytes that are handed to a terminal's clipboard at most."""


class Deeds(App[None], inherit_bindings=False):
    """The part of the panel that only opens, asks and hands over."""

    look: Look

    @property
    def _panel(self) -> Panel:
        return cast("Panel", self)

    def notice(self, words: str, role: str = "text") -> None:
        """Say something in the footer for a few seconds."""
        raise NotImplementedError

    async def action_back(self) -> None:
        if isinstance(self.screen, PanelScreen):
            self.screen.go_back()

    def action_copy(self) -> None:
        """Copy what the focused pane would give."""
        text_to_copy = getattr(self.screen.focused, "text_to_copy", None)
        if text_to_copy is None:
            self.notice("nothing to copy here", "warn")
        else:
            self.copy(text_to_copy())

    def action_save_file(self) -> None:
        """Save what the focused pane, or its screen, would give."""
        from eagle3_tui.saving import save

        for node in (self.screen.focused, self.screen):
            save_files = getattr(node, "save_files", None)
            if save_files is not None:
                save(self._panel, save_files())
                return
        self.notice("nothing to save here; S saves the screen", "warn")

    def action_picture(self) -> None:
        from eagle3_tui.saving import picture_of, save

        save(self._panel, picture_of(self._panel))

    def action_zoom(self) -> None:
        if isinstance(self.screen, PanelScreen):
            self.screen.zoom()

    def action_command(self) -> None:
        from eagle3_tui.commandline import completions, run_line

        def run(text: str) -> None:
            self.call_after_refresh(run_line, self._panel, text)

        self.ask_line(":", "", run, "run train, stop, doctor, hosts", completions(self._panel))

    def action_palette(self) -> None:
        from eagle3_tui.commandline import open_palette

        if isinstance(self.screen, PanelScreen):
            open_palette(self._panel)

    def _visit(self, name: str) -> None:
        """Open one of the screens that can be reached from anywhere, or come back from it."""
        from eagle3_tui.screens import visited

        kind = visited(name)
        screen = self.screen
        if isinstance(screen, kind):
            screen.leave()
        elif isinstance(screen, PanelScreen):
            self.push_screen(kind(screen.stage))

    def action_hosts(self) -> None:
        self._visit("hosts")

    def action_machine(self) -> None:
        self._visit("machine")

    def action_events(self) -> None:
        self._visit("events")

    def action_orphans(self) -> None:
        self._visit("orphans")

    def action_doctor(self) -> None:
        self._visit("doctor")

    def action_config(self) -> None:
        self._visit("config")

    def action_serve(self) -> None:
        self._visit("serve")

    def action_results(self) -> None:
        self._visit("results")

    def action_trace(self) -> None:
        self._visit("trace")

    def action_campaign(self) -> None:
        from eagle3_tui.going import choose_campaign

        if isinstance(self.screen, PanelScreen):
            choose_campaign(self._panel)

    def action_host(self, place: int = 0) -> None:
        """By number; where none is given, from their screen."""
        if not place:
            self.action_hosts()
        elif isinstance(self.screen, PanelScreen):
            self.go_to_host(place)

    def go_to_host(self, wanted: int | str) -> None:
        """A known host by number or name."""
        from eagle3_tui.going import to_host

        to_host(self._panel, wanted)

    def go_to_campaign(self, name: str) -> None:
        """A profile by name or path."""
        from eagle3_tui.going import to_campaign

        to_campaign(self._panel, name)

    def action_help(self) -> None:
        from eagle3_tui.screens.help import HelpScreen

        if isinstance(self.screen, PanelScreen) and not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen.context))

    def action_switch_theme(self) -> None:
        name = palette_name(self.console.color_system, dark="light" in self.theme)
        self.look = Look(PALETTES[name], self.look.ascii_only)
        self.theme = name

    def action_shell(self) -> None:
        """A shell on the host in the panel's own terminal; what runs, and the link, do not notice."""
        panel, screen = self._panel, self.screen
        if not isinstance(screen, PanelScreen) or panel.refuses_acts("open a shell"):
            return

        def come(answer: dict[str, Any]) -> None:
            from eagle3_tui.lending import lend

            if trouble := lend(panel, answer["argv"]):
                panel.notice(trouble, "warn")

        panel.inquire(Shell(screen.stage), come, panel.refused_by_the_way)

    def send_to_terminal(self, sequence: str) -> None:
        """Write a control sequence between two frames."""
        if self._driver is not None and sequence:
            self._driver.write(sequence)

    def copy(self, text: str) -> None:
        """Hand text to the terminal's clipboard (OSC 52); what it cannot take becomes a file."""
        data = text.encode()
        if not text:
            self.notice("nothing to copy", "warn")
            return
        if len(data) > COPY_LIMIT or not has_clipboard(os.environ):
            from eagle3_tui.saving import save

            save(self._panel, {"copied.txt": text})
            return
        self.copy_to_clipboard(text)
        lines = text.count("\n") + 1
        self.notice(f"copied {lines} line{'s' * (lines > 1)}, {size(len(data))}")

    def ask_line(
        self, label: str, text: str, then: Callable[[str], None], hint: str = "", known: Sequence[str] = ()
    ) -> None:
        """Let the operator type one line on the screen that is seen; ``known`` ones are completed."""
        screen = self.screen
        if isinstance(screen, PanelScreen):
            screen.ask_line(Prompt(label, text, then, hint, known, screen.focused))
