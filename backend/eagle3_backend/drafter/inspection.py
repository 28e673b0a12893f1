"""A model directory at a glance: its config, its weights one by one or in sum, and what is wrong with its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from eagle3_backend.drafter.folder import Folder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.drafter.jsonfile import read_object
from eagle3_backend.drafter.summary import Summary, summarize
from eagle3_backend.findings import Finding

CONFIG = "config.json"

MAX_LISTED = 4096
"""Most tensors that are told one by one. A drafter has 20, one with 384 experts 1200, and a large target 100 000."""


@dataclass(frozen=True)
class Inspection:
    """What a directory holds.

    ``config`` is None where there is none to be read. ``inventory`` is None where the summary has to do. ``findings``
    are those about config.json and those of the inventory.
    """

    path: str
    config: Optional[Dict[str, Any]]
    summary: Summary
    inventory: Optional[Inventory]
    findings: Tuple[Finding, ...]

    def to_json(self) -> Dict[str, Any]:
        """What goes from a host to a laptop."""
        return {
            "path": self.path,
            "config": self.config,
            "summary": self.summary.to_json(),
            "inventory": None if self.inventory is None else self.inventory.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Inspection:
        """Rebuild an inspection from `to_json`."""
        inventory = data["inventory"]
        return cls(
            data["path"],
            data["config"],
            Summary.from_json(data["summary"]),
            None if inventory is None else Inventory.from_json(inventory),
            tuple(map(Finding.from_json, data["findings"])),
        )


def inspect(folder: Folder) -> Inspection:
    """Read config and headers of a directory. What is wrong with its files is in the findings."""
    config, findings = read_object(folder, CONFIG)
    inventory = read_inventory(folder)
    return Inspection(
        folder.path,
        config,
        summarize(inventory.tensors),
        inventory if len(inventory.tensors) <= MAX_LISTED else None,
        (*findings, *inventory.findings),
    )
