"""Reading a prompt set wherever it comes from: a file, the program's own long documents, or a data set of a hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eagle3_backend import hub
from eagle3_backend.hub import Fetched
from eagle3_backend.pipeline import hub_sets, long_context
from eagle3_backend.pipeline.conversations import read_file, read_records


def read(source: Path | str, look: Callable[[], None] = lambda: None) -> Fetched:
    """The set of a path or of a name (see `pipeline.prompt_names`). ``look`` is called now and then, and may raise.

    Raises FindingError for what cannot be read as a whole.
    """
    if source == long_context.NAME:
        conversations, bad = read_records([(row["id"], row) for row in long_context.rows()], long_context.NAME)
    elif isinstance(source, str) and hub_sets.is_hub(source):
        return hub.fetch(source, look)
    else:
        conversations, bad = read_file(Path(source))
    return Fetched("", tuple(conversations), tuple(bad))
