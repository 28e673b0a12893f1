"""The launch of an engine with the campaign's drafter: checked on the host where everything lies, then planned."""

from __future__ import annotations

import json
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


def drafted_engine(context: StageContext) -> Plan:
    """The stage's engine with the drafter of its layout. What is wrong with the launch is reported; an error that the
    operator has not accepted ends the stage (FindingError)."""
    parameters, engine = context.parameters, context.spec["engine"]
    directory = context.inputs["drafter"] / parameters.layout
    check_drafter(directory, parameters.depth)
    config = _object(directory / "config.json")
    made = _object(context.inputs["drafter"] / "manifest.json")["summary"]
    quantised = bool(config.get("quantization_config"))
    plan = with_drafter(engine, str(directory), parameters.depth, made["aux_layers"], quantised)
    plan = of_operator(plan, getattr(parameters, "options", {}))
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
