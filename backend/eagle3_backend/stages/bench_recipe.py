"""What has to be equal before two benches may be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle3_backend.engines import prompt_sets
from eagle3_backend.engines.answers import Prompt
from eagle3_backend.engines.plan import options_of
from eagle3_backend.engines.streams import tells_enough
from eagle3_backend.pipeline import long_context
from eagle3_backend.pipeline.artifacts import MANIFEST
from eagle3_backend.stages.context import StageContext

CACHE_FLAG = "--kv-cache-dtype"
"""Both engines know it by this name."""


def recipe(
    context: StageContext,
    facts: Mapping[str, Any],
    sets: Mapping[str, Sequence[Prompt]],
    version: str,
    *,
    interleaved: bool,
) -> dict[str, Any]:
    """The recipe of this bench, from what was asked of which engine build."""
    parameters, engine = context.parameters, context.spec["engine"]
    short = {name: prompts for name, prompts in sets.items() if name != long_context.NAME}
    documents = {name: prompts for name, prompts in sets.items() if name not in short}
    config = json.loads((context.inputs["target"] / "config.json").read_text(encoding="utf-8"))
    return {
        "target": facts["model"],
        "revision": facts["revision"],
        "engine": engine["engine"],
        "engine_version": version,
        "device": engine["device"],
        "layout": parameters.layout,
        "drafter": context.spec.get("input_fingerprints", {}).get("export"),
        "depth": parameters.depth,
        "depths": sorted({parameters.depth, *parameters.depths}),
        "against": list(parameters.against),
        "temperature": 0.0,
        "max_new_tokens": parameters.max_new_tokens,
        "concurrency": parameters.concurrency,
        "concurrencies": sorted({1, *parameters.concurrencies}),
        "context": parameters.context,
        "dtype": parameters.dtype,
        "quantisation": _quantisation(config),
        "kv_cache_dtype": str(options_of(engine["argv"]).get(CACHE_FLAG, "auto")),
        "prefix_caching": False,
        "template_hash": facts["template_hash"],
        "prompt_set_hash": prompt_sets.set_hash(short),
        # By itself: asking for long documents too leaves the other figures what they are.
        **({"long_context_hash": prompt_sets.set_hash(documents)} if documents else {}),
        **_data_sets(context.inputs["prompts"]),
        "turns": "first",
        "speed": "interleaved" if interleaved else "one after the other",
        "timed_answers": "streamed" if tells_enough(engine["engine"], version) else "whole",
    }


def _data_sets(prompts: Path) -> dict[str, Any]:
    """The data sets of a hub that the prompts are from, each by a name that tells the commit."""
    try:
        found = json.loads((prompts / MANIFEST).read_text(encoding="utf-8"))["summary"].get("data_sets")
    except (OSError, ValueError, KeyError):
        return {}
    return {"data_sets": found} if found else {}


def _quantisation(config: Mapping[str, Any]) -> str:
    """The target's, as its config names it."""
    text = config.get("text_config") or {}
    found = config.get("quantization_config") or text.get("quantization_config") or {}
    return str(found.get("quant_method") or found.get("quant_algo") or "none")
