"""Model directories as commands are given them: a path of this machine, or HOST:PATH on the profile's host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_tui.commands.campaign import Choice, opened
from eagle3_tui.commands.output import Output

if TYPE_CHECKING:
    from eagle3_backend.drafter.inventory import Inventory


@dataclass(frozen=True)
class Model:
    """A config and, where a directory was given, its weights. ``findings`` are those about the files."""

    path: str
    config: dict[str, Any]
    inventory: Inventory | None
    findings: tuple[Finding, ...]


def open_models(choice: Choice, output: Output, *places: str) -> list[Model]:
    """Read every place; the campaign's host is reached only when one lies there. Raises FindingError."""
    if not any(_on_host(place) for place in places):
        return [_local(place) for place in places]
    address = choice.load().host.address
    for place in filter(_on_host, places):
        if place.split(":", 1)[0] != address:
            raise FindingError(
                error(
                    "host_unknown",
                    f"'{place}' is not here, and it is not on {address}, the host of this profile.",
                    path=place,
                    expected=f"{address}:PATH",
                    actual=place,
                    fix="Name the profile of that host with --profile.",
                )
            )
    from eagle3_backend.control.commands import Inspect

    with opened(choice, output) as control:
        return [
            _model(control.submit(Inspect(place.split(":", 1)[1])).result()) if _on_host(place) else _local(place)
            for place in places
        ]


def _on_host(place: str) -> bool:
    return ":" in place and not Path(place).expanduser().exists()


def _local(place: str) -> Model:
    from eagle3_backend.drafter.configfile import open_config
    from eagle3_backend.drafter.folder import LocalFolder
    from eagle3_backend.drafter.inventory import read_inventory

    file = open_config(place)
    folder = Path(place).expanduser()
    inventory = read_inventory(LocalFolder(folder)) if folder.is_dir() else None
    return Model(file.path, file.config, inventory, file.findings)


def _model(answer: dict[str, Any]) -> Model:
    """What a host told of a directory."""
    from eagle3_backend.drafter.inspection import Inspection

    found = Inspection.from_json(answer)
    if found.config is None:
        raise FindingError(*found.findings)
    about_weights = found.inventory.findings if found.inventory else ()
    own = tuple(finding for finding in found.findings if finding not in about_weights)
    return Model(found.path, found.config, found.inventory, own)
