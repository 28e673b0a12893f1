"""The result of a bench in a file of this machine, as ``bench --json`` wrote it: of a server that already ran, or of a
campaign."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.jsonfile import read_object
from eagle3_backend.findings import FindingError, error
from eagle3_tui.benchfigures import Bench, engine_of
from eagle3_tui.text import clean


def read(path: str) -> Bench:
    """May take as long as a disk takes. Raises FindingError for what is no result of a bench."""
    file = Path(path).expanduser()
    lies = file.resolve()
    value, findings = read_object(LocalFolder(lies.parent), lies.name)
    if value is None:
        raise FindingError(*findings)
    # A campaign's result stands among what else its command tells.
    result = value.get("result")
    summary = result if isinstance(result, Mapping) else value
    if not isinstance(summary.get("cells"), list) or not isinstance(summary.get("recipe"), Mapping):
        raise FindingError(
            error(
                "bench_file_invalid",
                f"{file.name} is no result of a bench.",
                path=str(file),
                expected='"cells" and "recipe", as bench writes them',
                actual=[clean(name, 40) for name in list(value)[:8]],
                fix="Write one: eagle3-tui bench --endpoint URL --concurrency 1,4 --json > FILE",
            )
        )
    told = (file.name, summary.get("endpoint"), engine_of(summary))
    return Bench(", ".join(clean(words, 200) for words in told if words), summary)
