"""Launch plans of either engine by its name: a plan names its engine, so that what is added fits it."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Dict, Mapping, Optional, Sequence

from eagle3_backend.engines import sglang, vllm
from eagle3_backend.engines.plan import Plan, Wishes

PLANNERS: Mapping[str, ModuleType] = {vllm.ENGINE: vllm, sglang.ENGINE: sglang}
"""The module that plans for each engine; all of them have the functions below."""

PROFILE_DELAY = 4
"""Steps of an engine, once it was asked to profile, in which the prompts are read: they are not profiled."""


def plan_server(engine: str, python: str, wishes: Wishes) -> Dict[str, Any]:
    """The plain target server. Raises KeyError for an unknown engine, FindingError for a device it cannot serve on."""
    return dict(PLANNERS[engine].plan_server(python, wishes))


def with_drafter(
    plan: Plan, drafter: str, depth: int, aux_layers: Optional[Sequence[int]] = None, quantised: bool = False
) -> Dict[str, Any]:
    """The same server with an EAGLE-3 drafter that proposes ``depth`` tokens a step."""
    return dict(PLANNERS[plan["engine"]].with_drafter(plan, drafter, depth, aux_layers, quantised))


def with_ngram(plan: Plan, depth: int) -> Dict[str, Any]:
    """The same server, drafting ``depth`` tokens from what was said before, without any drafter."""
    return dict(PLANNERS[plan["engine"]].with_ngram(plan, depth))


def with_own_head(plan: Plan, depth: int) -> Dict[str, Any]:
    """The same server, drafting with the target's own multi-token head."""
    return dict(PLANNERS[plan["engine"]].with_own_head(plan, depth))


def with_capture(plan: Plan, layer_ids: Sequence[int], directory: str) -> Dict[str, Any]:
    """The same server, writing hidden states. Raises FindingError where the engine has no way to."""
    return dict(PLANNERS[plan["engine"]].with_capture(plan, layer_ids, directory))


def with_measurement(plan: Plan, *, drafting: bool) -> Dict[str, Any]:
    """The same server, made comparable between runs."""
    return dict(PLANNERS[plan["engine"]].with_measurement(plan, drafting=drafting))


def with_profiler(plan: Plan, directory: str, steps: int) -> Dict[str, Any]:
    """The same server, able to profile ``steps`` steps into ``directory`` once it is asked to (`profile_request`)."""
    return dict(PLANNERS[plan["engine"]].with_profiler(plan, directory, steps, PROFILE_DELAY))


def profile_request(engine: str, directory: str, steps: int) -> Dict[str, Any]:
    """The body of the request that starts the profiler of a server planned by `with_profiler`."""
    return dict(PLANNERS[engine].profile_request(directory, steps, PROFILE_DELAY))
