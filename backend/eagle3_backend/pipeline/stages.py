"""The declaration of every stage: the one table that commands, panel, planner and documentation read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Dict, Mapping, Optional, Tuple, Type

from eagle3_backend.pipeline import parameters as p


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline.

    ``reads`` are the stages whose artifacts it takes (they enter its fingerprint); ``after`` must be done first without
    entering it. ``makes`` is the artifact's kind, None for a service. ``environment`` names the interpreter: ``host``
    is the agent's own. ``version`` is raised by hand when the same parameters give another output.
    """

    name: str
    title: str
    parameters: Type[p.StageParameters]
    reads: Tuple[str, ...]
    makes: Optional[str]
    environment: str
    engine: bool = False
    resumes: bool = False
    after: Tuple[str, ...] = ("setup",)
    version: int = 1

    def reads_of(self, parameters: p.StageParameters) -> Tuple[str, ...]:
        """What it takes with these parameters: an adopted drafter stands on the target alone."""
        if isinstance(parameters, p.ExportParameters) and parameters.adopt:
            return ("target",)
        return self.reads

    def environment_of(self, parameters: p.StageParameters) -> str:
        """The environment it runs in with these parameters: a chosen engine's or trainer's own, else the declared."""
        if isinstance(parameters, p.TrainParameters) and parameters.trainer != p.NATIVE:
            return parameters.trainer
        return str(getattr(parameters, "engine", self.environment))


_STAGES = (
    Stage("setup", "Environments", p.SetupParameters, (), "environments", "host", after=()),
    Stage("target", "Target facts", p.TargetParameters, (), "target", "train"),
    Stage("prompts", "Prompt set", p.PromptsParameters, (), "prompts", "train", version=2),
    Stage(
        "generate", "Target answers", p.GenerateParameters, ("target", "prompts"), "conversations", "vllm", True, True
    ),
    Stage("extract", "Hidden states", p.ExtractParameters, ("target", "generate"), "store", "vllm", True, True),
    Stage("vocab", "Draft vocabulary", p.VocabParameters, ("target", "generate"), "vocab", "train"),
    Stage(
        "train",
        "Training",
        p.TrainParameters,
        ("target", "extract", "vocab"),
        "checkpoint",
        "train",
        False,
        True,
        version=3,
    ),
    Stage(
        "evaluate",
        "Offline acceptance",
        p.EvaluateParameters,
        ("target", "train", "vocab", "extract"),
        "report",
        "train",
    ),
    Stage("export", "Drafter directories", p.ExportParameters, ("target", "train", "vocab"), "drafter", "train"),
    Stage("serve", "Endpoint", p.ServeParameters, ("target", "export"), None, "vllm", True),
    Stage(
        "bench",
        "Comparison",
        p.BenchParameters,
        ("target", "export", "prompts", "generate"),
        "comparison",
        "vllm",
        True,
        True,
    ),
    Stage("diagnose", "Diagnosis", p.DiagnoseParameters, ("target", "export", "bench"), "diagnosis", "train"),
    Stage("trace", "Decode profile", p.TraceParameters, ("target", "export"), "profile", "vllm", True),
)

STAGES: Dict[str, Stage] = {stage.name: stage for stage in _STAGES}
"""Every stage by name, in pipeline order."""


def needed(through: str, reads: Optional[Mapping[str, Tuple[str, ...]]] = None) -> Tuple[str, ...]:
    """The stages that ``through`` stands on, itself last, in pipeline order. Raises KeyError for an unknown name.

    ``reads`` is what each stage of a certain campaign takes (`Stage.reads_of`); None stands for the declared reads.
    """
    wanted = set()
    todo = [through]
    while todo:
        stage = STAGES[todo.pop()]
        if stage.name not in wanted:
            wanted.add(stage.name)
            todo += [*(stage.reads if reads is None else reads[stage.name]), *stage.after]
    return tuple(name for name in STAGES if name in wanted)


def in_order(names: Collection[str]) -> Tuple[str, ...]:
    """The order in which one start runs these: as declared, but a service last, for nothing follows one."""
    return tuple(sorted((name for name in STAGES if name in names), key=lambda name: STAGES[name].makes is None))
