"""From a plan to the start request: the specs of a chain, and what has to be there before it may start."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eagle3_backend.control.snapshot import Machine
from eagle3_backend.engines.launch import plan_server
from eagle3_backend.engines.plan import Wishes
from eagle3_backend.findings import Finding, FindingError, Severity, error
from eagle3_backend.pipeline import environments
from eagle3_backend.pipeline.parameters import NATIVE, StageParameters, TargetParameters
from eagle3_backend.pipeline.plan import CampaignPlan, PlannedStage, spec_of, to_run
from eagle3_backend.pipeline.stages import STAGES

BULK = ("generate", "extract")
"""Stages whose engine works offline: throughput alone counts."""

GPU_STAGES = ("generate", "extract", "train", "evaluate", "serve", "bench", "trace")


@dataclass(frozen=True)
class Ground:
    """What specs need to know of a host: the agent's interpreter, the payload's hash, and the GPUs and their links.

    ``busy`` are the uuids of GPUs that are held: they are taken only where there are not enough others.
    """

    python: str
    payload: str
    machine: Machine
    pcie_only: bool = False
    busy: frozenset[str] = frozenset()


def python_of(name: str, parameters: Mapping[str, StageParameters], ground: Ground, workspace: str) -> str:
    """The interpreter of an environment; ``host`` is the agent's own. Raises FindingError `environment_missing`."""
    if name == "host":
        return ground.python
    entries: Mapping[str, Mapping[str, str]] = getattr(parameters["setup"], "environments")  # noqa: B009
    if name not in entries:
        raise FindingError(
            error(
                "environment_missing",
                f"The profile names no environment '{name}', which this campaign needs.",
                path=f"environments.{name}",
                fix=f'Add [environments.{name}] with python = "/path/bin/python", or with set.',
            )
        )
    wanted = entries[name].get("set")
    if wanted and wanted not in environments.SETS:
        raise FindingError(environments.set_unknown(name, wanted))
    return environments.python_of(name, entries[name], workspace)


def device_of(name: str, parameters: Mapping[str, StageParameters], machine: Machine) -> str:
    """``cpu`` or ``cuda``: as the environment was built, or for an adopted one, whether the host has GPUs."""
    entry: Mapping[str, str] = getattr(parameters["setup"], "environments").get(name, {})  # noqa: B009
    if entry.get("set") in environments.SETS:
        return environments.SETS[entry["set"]].device
    return "cuda" if machine.gpus else "cpu"


def engine_of(
    planned: PlannedStage, parameters: Mapping[str, StageParameters], python: str, device: str, pcie_only: bool
) -> dict[str, Any] | None:
    """The plain target server of a stage that runs an engine.

    extract has no dtype and context of its own: it has to see what generate saw.
    """
    if not STAGES[planned.name].engine:
        return None
    own, target = planned.parameters, parameters["target"]
    assert isinstance(target, TargetParameters)
    shape: Any = parameters["generate"] if planned.name == "extract" else parameters[planned.name]
    wishes = Wishes(
        device=device,
        dtype=shape.dtype,
        context=shape.context,
        concurrency=max([int(own.get("concurrency", 32)), *own.get("concurrencies", ())]),
        tensor_parallel=own["tensor_parallel"],
        expert_parallel=own["expert_parallel"],
        pcie_only=pcie_only,
        trust_remote_code=target.trust_remote_code,
        bulk=planned.name in BULK,
    )
    return plan_server(own.get("engine", "vllm"), python, wishes)


def build_spec(
    planned: PlannedStage,
    plan: CampaignPlan,
    parameters: Mapping[str, StageParameters],
    ground: Ground,
    accepted: Sequence[str],
    work: float | None,
) -> dict[str, Any]:
    """The start request of one stage; ``work`` is what forecasts scale by, if it is known. Raises FindingError."""
    python = python_of(planned.environment, parameters, ground, plan.workspace)
    device = device_of(planned.environment, parameters, ground.machine)
    if planned.parameters.get("trainer", NATIVE) != NATIVE and device == "cuda" and not ground.machine.gpus:
        raise FindingError(_no_gpu(planned.environment))
    spec = spec_of(
        planned,
        python=python,
        payload=ground.payload,
        input_fingerprints={name: plan.stages[name].fingerprint for name in planned.reads},
        engine=engine_of(planned, parameters, python, device, ground.pcie_only),
        accepted=accepted,
    )
    spec["work"] = work
    if accepted:
        spec["accepted_by"] = f"{getpass.getuser()} on {socket.gethostname()}"
    if device == "cuda" and planned.name in GPU_STAGES:
        uuids = gpus_of(planned, ground)
        spec["gpus"] = uuids
        spec["env"] = {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if uuids else {}
    return spec


def gpus_of(planned: PlannedStage, ground: Ground) -> list[str]:
    """GPUs that a stage takes, idle ones first; a training that names no number of processes takes all idle ones."""
    uuids = sorted((gpu.uuid for gpu in ground.machine.gpus if gpu.uuid), key=ground.busy.__contains__)
    if planned.name == "train":
        idle = sum(uuid not in ground.busy for uuid in uuids)
        return uuids[: int(planned.parameters["processes"]) or max(idle, 1)]
    return uuids[: int(planned.parameters.get("tensor_parallel", 1))]


def _no_gpu(trainer: str) -> Finding:
    return error(
        "trainer_needs_gpu",
        f"{trainer} trains on a GPU, and the host shows none.",
        path="stages.train.trainer",
        actual=trainer,
        fix='Use trainer = "native" on this host.',
    )


def build_chain(
    stages: Sequence[PlannedStage],
    plan: CampaignPlan,
    parameters: Mapping[str, StageParameters],
    ground: Ground,
    accepted: Sequence[str],
    works: Mapping[str, float | None],
) -> dict[str, Any]:
    """One start request for all of ``stages``: the first, with the others behind it under ``then``."""
    first, *rest = [build_spec(planned, plan, parameters, ground, accepted, works[planned.name]) for planned in stages]
    return {**first, "then": rest}


def stages_to_run(
    plan: CampaignPlan, through: str, fresh: frozenset[str], *, only: bool = False, also: Sequence[str] = ()
) -> tuple[PlannedStage, ...]:
    """What a start has to run, with the chains of ``also``. Raises FindingError for ``only`` without its inputs."""
    if not only:
        return to_run(plan, (through, *also), fresh)
    missing = [name for name in plan.needed(through) if name != through and name not in fresh]
    if missing:
        raise FindingError(
            error(
                "stage_blocked",
                f"{through} needs what is not there yet: {', '.join(missing)}.",
                path=through,
                expected=missing,
                fix=f"eagle3-tui run --through {through}",
            )
        )
    return () if through in fresh else (plan.stages[through],)


def demote(findings: Sequence[Finding], accepted: Sequence[str]) -> list[Finding]:
    """The findings with accepted errors turned into warnings: overruled, not hidden."""
    return [
        replace(finding, severity=Severity.WARNING)
        if finding.code in accepted and finding.severity is Severity.ERROR
        else finding
        for finding in findings
    ]
