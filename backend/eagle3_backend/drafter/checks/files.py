"""Whether the weights are there and whole."""

from __future__ import annotations

from typing import Iterator

from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.findings import Finding


def check_files(subject: Subject) -> Iterator[Finding]:
    """What reading the directory found."""
    if subject.inventory is not None:
        yield from subject.inventory.findings


def check_config(subject: Subject) -> Iterator[Finding]:
    """What reading the config found, but for the aux layers: those mean something only to an engine."""
    for finding in subject.reading.findings:
        if not finding.code.startswith("aux_layers_"):
            yield finding
