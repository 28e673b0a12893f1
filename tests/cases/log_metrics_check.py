"""Read acceptance figures, judge or compare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.engines.acceptance import compare, judge, read_measurement, suspects
from eagle3_backend.engines.log_metrics import LogWindows
from eagle3_backend.engines.metrics import drafting, parse


def run(folder: Path, given: dict[str, Any]) -> Answer:
    if given.get("compare"):
        sides = {
            side: read_measurement(json.loads((folder / given[side]).read_text(encoding="utf-8")))
            for side in ("left", "right")
        }
        values = {f"{side}.{name}": value for side, found in sides.items() for name, value in vars(found).items()}
        return Answer(tuple(compare(sides["left"], sides["right"])), values)
    data, values = (folder / given["log"]).read_bytes(), {}
    if given["engine"].endswith("_prometheus"):
        counted = drafting(parse(data.decode("utf-8", "replace")))
    else:
        log = LogWindows(given.get("num_speculative_tokens", read_measurement(given).depth))
        log.feed_bytes(data)
        log.close()
        counted, values = log.drafting, {"windows": log.windows}
    values.update(
        drafts=counted.drafts,
        drafted=counted.drafted,
        accepted=counted.accepted,
        draft_acceptance_rate=counted.rate,
        mean_acceptance_length=counted.length,
        per_position=list(counted.position_rates),
        suspects=list(suspects(counted)),
    )
    return Answer(tuple(judge(counted)), values)
