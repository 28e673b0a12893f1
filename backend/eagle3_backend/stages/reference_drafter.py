"""The drafter that should be running: the one that was trained, or the one that a directory means."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from eagle3_backend.drafter.aux_layers import default_layers
from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.layouts import flat_tensor_name
from eagle3_backend.drafter.reading import read_config
from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding, error
from eagle3_backend.stages.drafter_model import Drafter, load_drafter
from eagle3_backend.stages.vocab import read_maps


@dataclass(frozen=True)
class ReferenceDrafter:
    """A drafter as an engine should apply it: config, weights by flat name, and the target id of each draft id [DV]."""

    config: DrafterConfig
    tensors: dict[str, Tensor]
    target_ids: Tensor

    def model(self, embedding: Tensor) -> Drafter:
        """The float32 model; ``embedding`` [V, H] is the target's, used where the drafter brings none."""
        weights = {name: tensor.float() for name, tensor in self.tensors.items()}
        own = weights.pop("embed_tokens.weight", None)
        return load_drafter(self.config, embedding.float() if own is None else own, weights).float().eval()


def of_checkpoint(checkpoint: Path, vocab: Path, dtype: torch.dtype) -> ReferenceDrafter:
    """What was trained, rounded to the dtype that it is exported in."""
    data = json.loads((checkpoint / "drafter.json").read_text(encoding="utf-8"))
    d2t, _ = read_maps(vocab)
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(checkpoint / "drafter.safetensors").items()}
    return ReferenceDrafter(DrafterConfig.from_json(data), tensors, d2t + torch.arange(len(d2t)))


def of_directory(directory: Path, target: dict[str, Any]) -> ReferenceDrafter:
    """What a drafter directory means for a target whose config.json is ``target``. Raises FindingError."""
    reading = read_config(json.loads((directory / "config.json").read_text(encoding="utf-8")), target)
    config = reading.drafter
    if not config.aux_layers:
        layers = Target.of(target).layers
        assert layers is not None
        config = replace(config, aux_layers=default_layers(layers))
    tensors = {flat_tensor_name(name): tensor for name, tensor in load_file(directory / "model.safetensors").items()}
    d2t = tensors.pop("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
    tensors.pop("t2d", None)
    return ReferenceDrafter(config, tensors, d2t.long() + torch.arange(len(d2t)))


def differences(reference: ReferenceDrafter, directory: Path, target: dict[str, Any]) -> list[Finding]:
    """What a drafter directory says or holds otherwise than the reference. Raises FindingError when unreadable."""
    found = of_directory(directory, target)
    findings = []
    for field in fields(DrafterConfig):
        wanted, actual = getattr(reference.config, field.name), getattr(found.config, field.name)
        if wanted != actual:
            findings.append(_differs("drafter_config_differs", field.name, str(wanted), str(actual)))
    if not torch.equal(found.target_ids, reference.target_ids):
        findings.append(_differs("drafter_map_differs", "d2t", "the ids that were trained", "others"))
    for name in sorted({*reference.tensors, *found.tensors} - {"embed_tokens.weight"}):
        mine, theirs = reference.tensors.get(name), found.tensors.get(name)
        if mine is None or theirs is None:
            state = ["absent" if tensor is None else list(tensor.shape) for tensor in (mine, theirs)]
            findings.append(_differs("drafter_weights_differ", name, *state))
        elif mine.shape != theirs.shape or not torch.equal(mine, theirs.to(mine.dtype)):
            findings.append(_differs("drafter_weights_differ", name, "the weights that were trained", "others"))
    return findings


def _differs(code: str, path: str, expected: Any, actual: Any) -> Finding:
    return error(
        code,
        f"The directory that is served differs in {path} from the drafter that was trained: {actual} instead of "
        f"{expected}.",
        path=path,
        expected=expected,
        actual=actual,
        fix="Export again; compare both configs with `eagle3-tui diff`.",
    )
