"""Writes the drafter as engines read it: the same weights in the flat and in the nested layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from eagle3_backend.drafter.checks import check_aux_layers, check_shapes, check_vocabulary_map
from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.layouts import flat_config, nested_config, nested_tensor_name
from eagle3_backend.findings import Finding, FindingError, Severity
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.pipeline.parameters import ExportParameters
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.train import CONFIG, WEIGHTS
from eagle3_backend.stages.vocab import read_maps

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def run(context: StageContext) -> None:
    """Check the trained drafter, then write ``flat/`` and ``nested/``. An error that was not accepted stops it."""
    parameters: ExportParameters = context.parameters
    checkpoint, target = context.inputs["checkpoint"], context.inputs["target"]
    config = DrafterConfig.from_json(json.loads((checkpoint / CONFIG).read_text(encoding="utf-8")))
    tensors = tensors_of(checkpoint, context.inputs["vocab"], config, getattr(torch, parameters.dtype))
    findings = check(config, tensors)
    refused = [entry for entry in findings if entry.severity is Severity.ERROR and entry.code not in context.accepted]
    for finding in findings:
        if finding not in refused:
            context.report(finding)
    if refused:
        raise FindingError(*refused)
    verifier = parameters.verifier or json.loads((target / "facts.json").read_text(encoding="utf-8"))["model"]
    nested = {nested_tensor_name(name): tensor for name, tensor in tensors.items()}
    write(context.output / "flat", flat_config(config, parameters.dtype), tensors)
    write(
        context.output / "nested",
        nested_config(config, parameters.dtype, verifier=verifier, depth=parameters.depth),
        nested,
    )
    context.finish(
        {
            "layouts": ["flat", "nested"],
            "aux_layers": list(config.aux_layers),
            "draft_vocab_size": config.draft_vocab_size,
            "bytes": (context.output / "flat" / WEIGHTS_FILE).stat().st_size,
            "dtype": parameters.dtype,
            "verifier": verifier,
        }
    )


def tensors_of(checkpoint: Path, vocab: Path, config: DrafterConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights under their flat names in ``dtype``, with both maps where the draft vocabulary is reduced.

    The embedding is left out: it is the target's, and engines share it where the widths agree.
    """
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in load_file(checkpoint / WEIGHTS).items()}
    if config.draft_vocab_size != config.vocab_size:
        tensors["d2t"], tensors["t2d"] = read_maps(vocab)
    return tensors


def check(config: DrafterConfig, tensors: dict[str, Tensor]) -> list[Finding]:
    """Shapes, aux layers and both vocabulary maps."""
    findings = check_shapes(config, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
    findings += check_aux_layers(config)
    if "d2t" in tensors:
        findings += check_vocabulary_map(tensors["d2t"].tolist(), tensors["t2d"].tolist(), config.vocab_size)
    return findings


def write(directory: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """One layout; an unfinished one of an earlier attempt is replaced."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    save_file(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
    write_json(directory / CONFIG_FILE, config)
