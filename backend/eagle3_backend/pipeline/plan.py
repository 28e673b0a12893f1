"""What a campaign consists of on a given workspace, and which of it has to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Collection, Dict, Mapping, Optional, Sequence, Tuple

from eagle3_backend.pipeline.fingerprint import fingerprint
from eagle3_backend.pipeline.parameters import StageParameters
from eagle3_backend.pipeline.prompt_names import identity, is_named
from eagle3_backend.pipeline.stages import STAGES, in_order, needed


@dataclass(frozen=True)
class Upload:
    """A laptop file that a stage reads; it travels by content to ``<workspace>/.eagle3/uploads/<sha256>/<name>``."""

    name: str
    sha256: str

    def path(self, workspace: str) -> str:
        return f"{workspace}/.eagle3/uploads/{self.sha256}/{self.name}"


@dataclass(frozen=True)
class PlannedStage:
    """One stage of one campaign with everything decided but the attempt.

    ``reads`` are the stages whose artifacts it takes; ``inputs`` maps their kinds (and ``files``, ``published`` for
    uploads) to paths on the host.
    """

    name: str
    reads: Tuple[str, ...]
    fingerprint: str
    run: str
    output: str
    inputs: Dict[str, Any]
    parameters: Dict[str, Any]
    environment: str


@dataclass(frozen=True)
class CampaignPlan:
    campaign: str
    workspace: str
    stages: Dict[str, PlannedStage]

    def needed(self, *through: str) -> Tuple[str, ...]:
        """These stages and all that they stand on in this campaign, in the order in which one start runs them."""
        reads = {name: planned.reads for name, planned in self.stages.items()}
        return in_order({name for last in through for name in needed(last, reads)})

    def outdated_by(self, name: str, old: Mapping[str, Any]) -> Tuple[str, ...]:
        """Stages above ``name`` whose fingerprints differ from those in ``old`` (an older manifest's ``inputs``)."""
        reads = self.stages[name].reads
        return tuple(read for read in reads if read in old and old[read] != self.stages[read].fingerprint)


def plan_campaign(
    campaign: str,
    workspace: str,
    parameters: Mapping[str, StageParameters],
    uploads: Mapping[str, Sequence[Upload]],
) -> CampaignPlan:
    """Decide fingerprints, runs, outputs and inputs of every stage.

    ``workspace`` is the absolute path on the host; ``uploads`` holds prompt files under ``files`` and ``published``.
    """
    stages: Dict[str, PlannedStage] = {}
    for stage in STAGES.values():
        values = parameters[stage.name]
        reads = stage.reads_of(values)
        prints: Dict[str, Any] = {name: stages[name].fingerprint for name in reads}
        paths: Dict[str, Any] = {str(STAGES[name].makes): stages[name].output for name in reads}
        if stage.name == "prompts":
            for kind, files in uploads.items():
                named = [identity(entry) for entry in getattr(values, kind) if is_named(entry)]
                prints[kind] = sorted([*(upload.sha256 for upload in files), *named])
                paths[kind] = [upload.path(workspace) for upload in files]
        name = fingerprint(stage, values, prints)
        stages[stage.name] = PlannedStage(
            name=stage.name,
            reads=reads,
            fingerprint=name,
            run=f"{campaign}-{stage.name}-{name}",
            output=f"{workspace}/{campaign}/{stage.name}/{name}",
            inputs=paths,
            parameters=asdict(values),
            environment=stage.environment_of(values),
        )
    return CampaignPlan(campaign, workspace, stages)


def to_run(plan: CampaignPlan, through: Sequence[str], fresh: Collection[str]) -> Tuple[PlannedStage, ...]:
    """The stages that must run so that these are there: all that they need and that is not ``fresh``, in order."""
    return tuple(plan.stages[name] for name in plan.needed(*through) if name not in fresh)


def spec_of(
    planned: PlannedStage,
    *,
    python: str,
    payload: str,
    input_fingerprints: Mapping[str, str],
    engine: Optional[Mapping[str, Any]] = None,
    accepted: Sequence[str] = (),
) -> Dict[str, Any]:
    """The start request of one stage (contract: spec.json). ``{run_directory}`` is filled in by the supervisor.

    The stage runs with the payload as its PYTHONPATH and PYTHONSAFEPATH=1 (``-P`` is unknown before Python 3.11).
    """
    return {
        "protocol": 1,
        "run": planned.run,
        "stage": planned.name,
        "stage_version": STAGES[planned.name].version,
        "fingerprint": planned.fingerprint,
        "parameters": planned.parameters,
        "inputs": planned.inputs,
        "input_fingerprints": dict(input_fingerprints),
        "output": planned.output,
        "argv": [python, "-m", "eagle3_backend.stages", "{run_directory}"],
        "engine": dict(engine) if engine else None,
        "environment": planned.environment,
        "payload": payload,
        "accepted": list(accepted),
    }
