"""The result of a bench in a file of this machine, as ``bench --json`` wrote it: of a server that already ran, or of a
campaign."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.jsonfile import read_object
from eagle3_backend.findings import Finding, FindingError, error
from eagle3_tui.benchfigures import Bench, engine_of
from eagle3_tui.text import clean

MAX_VALUES = 40_000
"""Most values of a result, lists and objects included, as all are drawn: one load of a way to draft has about fifty."""

_NOT_SHOWN = "answers"


def read(path: str) -> Bench:
    """May take as long as a disk takes. Raises FindingError for what is no result of a bench."""
    try:
        file = Path(os.path.expanduser(path))
        lies = file.resolve()
    except (RuntimeError, ValueError) as problem:  # a link to itself, a name that no file can have
        raise FindingError(
            error("file_unreadable", f"There can be no such file: {str(problem).rstrip('.')}.", path=path)
        ) from problem
    value, findings = read_object(LocalFolder(lies.parent), lies.name)
    if value is None:
        raise FindingError(*findings)
    # A campaign's result stands among what else its command tells.
    result = value.get("result")
    summary = result if isinstance(result, Mapping) else value
    # Benches of before loads were measured have no cells.
    measured = isinstance(summary.get("cells"), list) or isinstance(summary.get("acceptance_length"), Mapping)
    if not measured or not isinstance(summary.get("recipe"), Mapping):
        expected, actual = '"cells" and "recipe", as bench writes them', [clean(name, 40) for name in list(value)[:8]]
        raise FindingError(_invalid(file, "is no result of a bench", expected, actual))
    values = _count(summary)
    if values > MAX_VALUES:
        raise FindingError(_invalid(file, "holds more than any bench measures", f"{MAX_VALUES} values", values))
    told = (file.name, summary.get("endpoint"), engine_of(summary))
    return Bench(", ".join(clean(words, 200) for words in told if words), summary)


def _count(summary: Mapping[str, Any]) -> int:
    """Values of a result, but of what is not shown."""
    layer: list[Any] = [value for name, value in summary.items() if name != _NOT_SHOWN]
    found = 0
    while layer and found <= MAX_VALUES:
        found += len(layer)
        layer = [one for held in layer if isinstance(held, list | dict) for one in _members(held)]
    return found


def _members(held: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return held.values() if isinstance(held, dict) else held


def _invalid(file: Path, why: str, expected: str, actual: Any) -> Finding:
    return error(
        "bench_file_invalid",
        f"{file.name} {why}.",
        path=str(file),
        expected=expected,
        actual=actual,
        fix="Write one: eagle3-tui bench --endpoint URL --concurrency 1,4 --json > FILE",
    )
