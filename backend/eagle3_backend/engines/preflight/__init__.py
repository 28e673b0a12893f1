"""Preflight of a launch: what would fail, hang or silently accept nothing, told before anything starts.

Each check is a small function from a `Launch` to findings. What concerns the drafter's own files is in
`drafter.checks`, which is asked here with the context and the variables of the launch.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Tuple

from eagle3_backend.drafter import checks
from eagle3_backend.drafter.capabilities import CURRENT, Version
from eagle3_backend.engines.preflight import capture, host, sglang_flags, target, vllm_flags
from eagle3_backend.engines.preflight.launch import Launch
from eagle3_backend.findings import Finding

__all__ = ["CHECKS", "Launch", "check"]


def check_drafter(launch: Launch) -> Iterator[Finding]:
    """The drafter's config against target, engine, context and variables."""
    if launch.drafter is None or launch.capture:
        return
    yield from checks.check(
        launch.drafter,
        launch.engine,
        version=launch.version,
        target=launch.target,
        inventory=launch.inventory,
        context=launch.context,
        environment=launch.env,
    )


CHECKS: Tuple[Callable[[Launch], Iterator[Finding]], ...] = (
    vllm_flags.check_json,
    vllm_flags.check_method,
    vllm_flags.check_depth,
    vllm_flags.check_draft_parallel,
    vllm_flags.check_cache,
    sglang_flags.check_algorithm,
    sglang_flags.check_numbers,
    sglang_flags.check_quantisation,
    sglang_flags.check_cache,
    sglang_flags.check_tree,
    capture.check_capture,
    target.check_support,
    target.check_code,
    target.check_context,
    target.check_override,
    check_drafter,
    host.check_device,
    host.check_port,
    host.check_count,
    host.check_peer_access,
    host.check_memory,
    host.check_shared_memory,
)
"""All checks, in the order in which their findings are told."""


def check(launch: Launch) -> List[Finding]:
    """Everything that is wrong with a launch. Raises ValueError for a version that is none."""
    Version(launch.version or CURRENT[launch.engine])
    return [finding for one in CHECKS for finding in one(launch)]
