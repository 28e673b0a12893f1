"""Opening the panel on a campaign, or on made-up data, until the operator leaves it."""

from __future__ import annotations

import sys
from pathlib import Path

from eagle3_tui.app import DEFAULTS, Panel
from eagle3_tui.configuration import Configuration
from eagle3_tui.garbage import begin_process
from eagle3_tui.hangup import insist, leave_with_terminal
from eagle3_tui.source import Source


def run_panel(
    profile: Path,
    settings: tuple[str, ...] = (),
    *,
    autostart: str = "",
    mock: bool = False,
    ascii_only: bool = False,
    readonly: bool = False,
    own: Configuration = DEFAULTS,
    reduced: bool = False,
) -> int:
    """Show the panel until the operator leaves it. ``autostart`` names a stage: its chain is started once, on connect.

    The exit status: 0, or 1 when the panel itself failed.
    """
    source: Source
    if mock:
        from eagle3_tui.mock import MockSource

        source = MockSource()
    else:
        from eagle3_tui.source import ControlSource

        source = ControlSource(profile, tuple(settings), own.notices)
    panel = Panel(
        source,
        profile,
        tuple(settings),
        ascii_only=ascii_only,
        autostart=autostart,
        readonly=readonly,
        own=own,
        reduced=reduced,
    )
    panel.left = insist
    leave_with_terminal(sys.stdin.fileno(), source.close)
    begin_process()
    try:
        panel.run(mouse=True)
    finally:
        source.close()
    return panel.return_code or 0
