"""What does the log view show for these bytes?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.runs.loglines import progress_of
from eagle3_backend.runs.logreader import after, before
from eagle3_backend.runs.segments import Segments

BURST = 8192


def run(folder: Path, given: dict[str, Any]) -> Answer:
    raw = (folder / given["raw"]).read_bytes()
    with tempfile.TemporaryDirectory() as place:
        segments = Segments(Path(place) / "log")
        for offset in range(0, len(raw), BURST):
            segments.write("g1", offset, raw[offset : offset + BURST])
        shown = before(segments, None, int(given.get("view_max_lines") or 20_000)).lines
        everything = after(segments, 0, 1_000_000).lines
        saved = segments.read(0, len(raw) + 1)
    # Colours are kept as style and do not count as text.
    texts = [_plain(line.text) for line in shown]
    bars = [progress for progress in map(progress_of, texts) if progress is not None]
    return Answer(
        values={
            "lines": texts,
            "progress": [bar._asdict() for bar in bars],
            "line_count_total": len(everything),
            "view_lines": len(texts),
            "view_first": texts[0] if texts else None,
            "view_last": texts[-1] if texts else None,
            "saved_bytes_equal_raw": saved == raw,
        }
    )


def _plain(text: str) -> str:
    from eagle3_tui.widgets.logtext import plain

    return plain(text).rstrip()
