"""A campaign in small: ten samples through every stage, as one does before a long one.

Only parameters that enter the fingerprint carry the change, so a smoke campaign makes artifacts of its own and never
touches those of the real one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Mapping

from eagle3_backend.pipeline.parameters import StageParameters

SAMPLES = 10

_LIMITS: Dict[str, Dict[str, int]] = {
    "prompts": {"holdout": 4},
    "generate": {"max_new_tokens": 32},
    "train": {"epochs": 1},
    "evaluate": {"bootstrap": 200},
    "bench": {
        "max_new_tokens": 16,
        "in_domain": 4,
        "published": 4,
        "long_context": 2,
        "speed_prompts": 2,
        "lossless_prompts": 4,
        "bootstrap": 200,
    },
}
"""Upper bounds by stage and field; a profile that asks for less keeps its own value."""


def smoke(parameters: Mapping[str, StageParameters]) -> Dict[str, StageParameters]:
    """The same parameters of every stage, shrunk to `SAMPLES` training prompts and a few of everything else."""
    small = {name: _capped(values, _LIMITS.get(name, {})) for name, values in parameters.items()}
    prompts: Any = parameters["prompts"]
    # A limit of 0 means all prompts, so it is no upper bound like the others.
    limit = min(prompts.limit, SAMPLES) if prompts.limit else SAMPLES
    small["prompts"] = replace(small["prompts"], limit=limit)  # type: ignore[call-arg]
    return small


def _capped(values: StageParameters, limits: Mapping[str, int]) -> StageParameters:
    lowered: Dict[str, Any] = {name: min(getattr(values, name), limit) for name, limit in limits.items()}
    return replace(values, **lowered)
