"""The capability table for people: one row a thing, one column an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from eagle3_backend.drafter.capabilities import CAPABILITIES, CLASSES, ENGINES, NORM_FLAGS, Support


@dataclass(frozen=True)
class Row:
    """A line of the printed table: what, and per engine in words."""

    title: str
    cells: Dict[str, str] = field(default_factory=dict)
    source: str = ""

    def to_json(self) -> Dict[str, Any]:
        return {"title": self.title, **self.cells, "source": self.source}


def table() -> List[Row]:
    """The whole capability table for people: capabilities, architecture names, then norm flags by class."""
    rows = [
        Row(capability.title, {engine: _word(capability.of(engine)) for engine in ENGINES}, capability.source)
        for capability in CAPABILITIES
    ]
    for name in dict.fromkeys(name for known in CLASSES for name in known.architectures):
        loads = {known.engine: known.support for known in CLASSES if name in known.architectures}
        rows.append(_row(f"loads {name}", loads))
    for title in dict.fromkeys(known.title for known in CLASSES):
        by_engine = {known.engine: known for known in CLASSES if known.title == title}
        for flag in NORM_FLAGS:
            honours = {engine: known.flags.get(flag) for engine, known in by_engine.items()}
            rows.append(_row(f"{flag} in the {title} class", honours))
        many = {engine: known.many_layers for engine, known in by_engine.items()}
        rows.append(_row(f"several layers in the {title} class", many))
    return rows


def _row(title: str, supports: Mapping[str, Optional[Support]]) -> Row:
    return Row(title, {engine: _word(supports.get(engine)) for engine in ENGINES})


def _word(support: Optional[Support]) -> str:
    return "no" if support is None else str(support)
