"""Going elsewhere: to another host, campaign, or attempt of a stage. Nothing here waits for a network.

What runs goes on wherever it is; what is not saved is asked about first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_backend.control.commands import Attempts, FollowLog, Hosts
from eagle3_backend.findings import FindingError
from eagle3_tui.places import find_profile, profiles_by_name
from eagle3_tui.screens.choose import Choice, ChooseDialog
from eagle3_tui.text import clean

if TYPE_CHECKING:
    from eagle3_tui.app import Panel
    from eagle3_tui.screens.base import PanelScreen


def to_host(panel: Panel, wanted: int | str) -> None:
    """By its number on the hosts screen, or by its name."""

    def come(answer: Mapping[str, Any]) -> None:
        hosts = [*answer["hosts"]]
        if isinstance(wanted, int):
            found = hosts[wanted - 1] if wanted <= len(hosts) else None
        else:
            found = next((entry for entry in hosts if entry["name"] == wanted), None)
        if found is None:
            panel.notice(f"no host {clean(wanted, 60)} is known; t shows them", "warn")
        elif found["name"] == panel.picture.host.name:
            panel.notice(f"{clean(found['name'], 60)} is worked on already")
        else:
            _open_host(panel, found)

    panel.inquire(Hosts(), come, panel.refused_by_the_way)


def _open_host(panel: Panel, entry: Mapping[str, Any]) -> None:
    name, profile = clean(entry["name"], 60), Path(str(entry.get("profile") or ""))
    if not entry.get("profile") or not profile.is_file():
        panel.notice(f"no profile of {name} is known any more: t, and enter on it, writes one", "warn")
    else:
        _open(panel, profile)


def to_campaign(panel: Panel, name: str) -> None:
    """By the name or the path of its profile."""
    try:
        profile = find_profile(name)
    except FindingError as problem:
        panel.refused_by_the_way(problem)
        return
    if profile.is_file():
        _open(panel, profile)
    else:
        panel.notice(f"there is no file {clean(profile, 200)}", "warn")


def choose_campaign(panel: Panel) -> None:
    """From all profiles that have a name."""
    here = panel.opened.profile
    choices = [
        Choice(str(path), name, str(path.parent), path == here) for name, path in sorted(profiles_by_name().items())
    ]

    def chosen(value: str | None) -> None:
        if value is not None:
            _open(panel, Path(value))

    panel.push_screen(ChooseDialog("Work on", choices, "no profile has a name"), chosen)


def _open(panel: Panel, profile: Path) -> None:
    if profile == panel.opened.profile:
        panel.notice(f"{clean(profile.stem, 60)} is open already")
    else:
        panel.unless_unsaved("Another campaign", lambda: panel.open_profile(profile))


def choose_attempt(panel: Panel, screen: PanelScreen) -> None:
    """From all attempts of the screen's stage under the parameters of the profile."""
    stage = screen.stage

    def come(answer: Mapping[str, Any]) -> None:
        view = panel.picture.stage(stage)
        run, shown = (view.run if view else ""), panel.picture.log
        choices = [
            Choice(
                str(entry["attempt"]),
                f"attempt {entry['attempt']}",
                clean(entry.get("state") or "", 40),
                (shown.stage, shown.attempt) == (stage, entry["attempt"]),
            )
            for entry in answer["attempts"]
            if entry["run"] == run
        ]

        def chosen(value: str | None) -> None:
            if value is not None:
                screen.show_log_of(int(value))

        panel.push_screen(ChooseDialog(f"Log of {stage}", choices, f"{stage} has not run yet"), chosen)

    panel.inquire(Attempts(), come, panel.refused_by_the_way)


def step_attempt(panel: Panel, screen: PanelScreen, step: int) -> None:
    """To the log of the attempt before or after the one that is shown."""
    view, shown = panel.picture.stage(screen.stage), panel.picture.log
    newest = view.attempt if view is not None else 0
    here = shown.attempt if shown.stage == screen.stage else newest
    wanted = here + step
    if not 1 <= wanted <= newest:
        panel.notice(f"{clean(screen.stage, 40)} has no {'newer' if step > 0 else 'older'} attempt")
        return
    screen.show_log_of(wanted)
    panel.notice(f"attempt {wanted} of {newest}")


def follow(panel: Panel, stage: str, attempt: int) -> None:
    """Show the log of an attempt. The newest is shown as such: the next one will be, too."""
    view = panel.picture.stage(stage)
    newest = view is None or attempt == view.attempt
    panel.ask(FollowLog(stage, 0 if newest else attempt))
