"""Model directories as commands are given them: a path of this machine, or HOST:PATH on the profile's host or on
another one that is known."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_backend.findings import Finding, FindingError
from eagle3_tui.commands.campaign import Choice, facade, open_campaign
from eagle3_tui.commands.output import Output

if TYPE_CHECKING:
    from eagle3_backend.control import Control
    from eagle3_backend.drafter.folder import Folder
    from eagle3_backend.drafter.inventory import Inventory


@dataclass(frozen=True)
class Model:
    """A config and, where a directory was given, its weights. ``findings`` are those about the config file.

    ``folder`` is the directory, where it is one of this machine.
    """

    path: str
    config: dict[str, Any]
    inventory: Inventory | None
    findings: tuple[Finding, ...]
    folder: Folder | None = None


def open_models(choice: Choice, output: Output, *places: str) -> list[Model]:
    """Read every place; no host is reached that none of them names. Raises FindingError."""
    named = {_split(place)[0] for place in places if _on_host(place)}
    if not named:
        return [_local(place) for place in places]
    of_profile = choice.load().host.address
    with facade() as control:
        if of_profile in named:
            open_campaign(control, choice, output)
        return [_of_host(control, place, of_profile) if _on_host(place) else _local(place) for place in places]


def _of_host(control: Control, place: str, of_profile: str) -> Model:
    from eagle3_backend.control.commands import Inspect

    host, path = _split(place)
    return _model(control.submit(Inspect(path, "" if host == of_profile else host)).result())


def _split(place: str) -> tuple[str, str]:
    host, _, path = place.partition(":")
    return host, path


def _on_host(place: str) -> bool:
    return ":" in place and not os.path.exists(os.path.expanduser(place))


def _local(place: str) -> Model:
    from eagle3_backend.drafter.configfile import open_config
    from eagle3_backend.drafter.folder import LocalFolder
    from eagle3_backend.drafter.inventory import read_inventory

    file = open_config(place)
    if not os.path.isdir(os.path.expanduser(place)):
        return Model(file.path, file.config, None, file.findings)
    folder = LocalFolder(Path(place))
    return Model(file.path, file.config, read_inventory(folder), file.findings, folder)


def _model(answer: dict[str, Any]) -> Model:
    """What a host told of a directory."""
    from eagle3_backend.drafter.inspection import Inspection

    found = Inspection.from_json(answer)
    if found.config is None:
        raise FindingError(*found.findings)
    about_weights = found.inventory.findings if found.inventory else ()
    own = tuple(finding for finding in found.findings if finding not in about_weights)
    return Model(found.path, found.config, found.inventory, own)
