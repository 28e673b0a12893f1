"""Writes the drafter as engines read it: the same weights in the flat and in the nested layout.

A finished drafter of somebody else can be adopted instead, in the one layout that it has.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from eagle3_backend.drafter.aux_layers import default_layers, for_sglang
from eagle3_backend.drafter.checks import check
from eagle3_backend.drafter.config import DrafterConfig, Packaging
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import read_inventory
from eagle3_backend.drafter.jsonfile import read_object
from eagle3_backend.drafter.layouts import flat_config, nested_config, nested_tensor_name
from eagle3_backend.drafter.reading import NESTED, layout_of, read_config
from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding, FindingError, Severity, error
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.pipeline.parameters import ExportParameters
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafter_directory import check_drafter
from eagle3_backend.stages.train import CONFIG, WEIGHTS
from eagle3_backend.stages.vocab import read_maps

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def run(context: StageContext) -> None:
    """Write ``flat/`` and ``nested/`` and check what was written. An error that was not accepted leaves neither."""
    shutil.rmtree(context.output)
    context.output.mkdir()
    if context.parameters.adopt:
        adopt(context)
    else:
        write_trained(context)


def write_trained(context: StageContext) -> None:
    """Both layouts of the drafter that was trained. Raises FindingError."""
    parameters: ExportParameters = context.parameters
    checkpoint, target = context.inputs["checkpoint"], context.inputs["target"]
    config = DrafterConfig.from_json(json.loads((checkpoint / CONFIG).read_text(encoding="utf-8")))
    tensors = tensors_of(checkpoint, context.inputs["vocab"], config, getattr(torch, parameters.dtype))
    target_config = json.loads((target / CONFIG_FILE).read_text(encoding="utf-8"))
    facts = Target.of(target_config)
    packaging = Packaging(
        dtype=parameters.dtype,
        verifier=parameters.verifier or json.loads((target / "facts.json").read_text(encoding="utf-8"))["model"],
        verifier_architectures=(facts.architecture,),
        speculative_tokens=parameters.depth,
    )
    engine_ids = for_sglang(config.aux_layers, facts.architecture, facts.layers)
    write(context.output / "flat", flat_config(config, packaging, engine_ids), tensors)
    nested = {nested_tensor_name(name): tensor for name, tensor in tensors.items()}
    write(context.output / "nested", nested_config(config, packaging), nested)
    # What is wrong in both layouts is told once; that the target is named by its place on this host is no fault here.
    findings = {
        finding.code: finding
        for layout in ("nested", "flat")
        for finding in judge(context.output / layout, target_config)
        if finding.code != "verifier_path_local"
    }
    try:
        context.refuse(*findings.values())
    except FindingError:
        for layout in ("flat", "nested"):
            shutil.rmtree(context.output / layout)
        raise
    context.finish(
        {
            "layouts": ["flat", "nested"],
            "aux_layers": list(config.aux_layers),
            "draft_vocab_size": config.draft_vocab_size,
            "bytes": (context.output / "flat" / WEIGHTS_FILE).stat().st_size,
            "dtype": parameters.dtype,
            "verifier": packaging.verifier,
        }
    )


def adopt(context: StageContext) -> None:
    """Copy a finished drafter of another place into the layout that it is in. Raises FindingError."""
    source = context.workspace / Path(context.parameters.adopt).expanduser()
    if not source.is_dir():
        raise FindingError(_no_drafter(source))
    check_drafter(source, context.parameters.depth)
    target = json.loads((context.inputs["target"] / CONFIG_FILE).read_text(encoding="utf-8"))
    facts = Target.of(target)
    assert facts.layers is not None
    reading = read_config(json.loads((source / CONFIG_FILE).read_text(encoding="utf-8")), target)
    config = replace(reading.drafter, aux_layers=reading.drafter.aux_layers or default_layers(facts.layers))
    context.refuse(*judge(source, target))
    directory = context.output / reading.layout
    directory.mkdir()
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        shutil.copyfile(source / name, directory / name)
    context.finish(
        {
            "layouts": [directory.name],
            "adopted": str(source),
            "aux_layers": list(config.aux_layers),
            "draft_vocab_size": config.draft_vocab_size,
            "bytes": (directory / WEIGHTS_FILE).stat().st_size,
            "dtype": reading.packaging.dtype,
        }
    )


def judge(directory: Path, target: dict[str, Any]) -> list[Finding]:
    """Everything that is wrong with a drafter on vLLM, which the campaign serves it with.

    What SGLang alone would trip over is a warning: the files may be meant for vLLM only.
    """
    folder = LocalFolder(directory)
    config, findings = read_object(folder, CONFIG_FILE)
    if config is None:
        return findings
    inventory = read_inventory(folder)
    findings += check(config, "vllm", target=target, inventory=inventory)
    if layout_of(config) == NESTED:
        return findings
    known = {finding.code for finding in findings}
    others = check(config, "sglang", target=target, inventory=inventory)
    return findings + [
        replace(finding, severity=Severity.WARNING) if finding.severity is Severity.ERROR else finding
        for finding in others
        if finding.code not in known
    ]


def _no_drafter(source: Path) -> Finding:
    return error(
        "drafter_missing",
        f"There is no drafter to adopt in {source}.",
        path="stages.export.adopt",
        expected=f"a directory with {CONFIG_FILE} and {WEIGHTS_FILE}",
        actual=str(source),
        fix="Name the drafter's directory on the host, or leave export.adopt empty to train one.",
    )


def tensors_of(checkpoint: Path, vocab: Path, config: DrafterConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights under their flat names in ``dtype``, with both maps where the draft vocabulary is reduced.

    The embedding is left out: it is the target's, and engines share it where the widths agree.
    """
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in load_file(checkpoint / WEIGHTS).items()}
    if config.draft_vocab_size != config.vocab_size:
        tensors["d2t"], tensors["t2d"] = read_maps(vocab)
    return tensors


def write(directory: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """One layout; an unfinished one of an earlier attempt is replaced."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    save_file(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
    write_json(directory / CONFIG_FILE, config)
