"""The launch of an engine with a drafter, the campaign's or another: checked on the host, then planned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import read_inventory
from eagle3_backend.engines import preflight
from eagle3_backend.engines.launch import with_drafter
from eagle3_backend.engines.plan import Plan, of_operator
from eagle3_backend.engines.preflight import Launch
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafter_directory import check_drafter
from eagle3_backend.stages.option_surface import identity


def drafted_engine(context: StageContext, depth: int | None = None) -> Plan:
    """The stage's engine with the drafter of its layout, at the stage's depth or another one; raises as
    `engine_with`."""
    parameters = context.parameters
    directory = context.inputs["drafter"] / parameters.layout
    made = _object(context.inputs["drafter"] / "manifest.json")["summary"]
    return engine_with(context, directory, depth or parameters.depth, made["aux_layers"])


def engine_with(context: StageContext, directory: Path, depth: int, aux_layers: Sequence[int] | None = None) -> Plan:
    """The stage's engine with the drafter in ``directory``. What is wrong with the launch is reported; an error that
    the operator has not accepted ends the stage (FindingError)."""
    engine = context.spec["engine"]
    check_drafter(directory, depth)
    config = _object(directory / "config.json")
    plan = with_drafter(engine, str(directory), depth, aux_layers, bool(config.get("quantization_config")))
    plan = of_operator(plan, getattr(context.parameters, "options", {}))
    launch = Launch.of(
        plan,
        version=str(identity(engine["engine"])["version"] or "").partition("+")[0],
        drafter=config,
        target=_object(context.inputs["target"] / "config.json"),
        inventory=read_inventory(LocalFolder(directory)),
    )
    context.refuse(*preflight.check(launch))
    return plan


def _object(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))
