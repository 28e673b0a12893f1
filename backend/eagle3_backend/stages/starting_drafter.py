"""The drafter that a training starts from: a fresh one of the target's shape, or one that was trained before.

A drafter that was trained before keeps its form, its head and its draft vocabulary. That vocabulary has to be the one
of the `vocab` stage, which takes it over with ``vocab.adopt``, so that all later stages read the same map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagle3_backend.drafter.config import DrafterConfig, drafter_for
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.drafter_directory import check_drafter
from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.initial_weights import scale_aux
from eagle3_backend.stages.reference_drafter import ReferenceDrafter, of_directory
from eagle3_backend.stages.training_rows import Conversation

FORM = (
    "heads",
    "kv_heads",
    "head_dim",
    "intermediate_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
)
"""Parameters that, where they are set, give the drafter another form than the target's own layer."""
OWN = (*FORM, "rms_norm_eps", "max_position_embeddings", "rope", "bos_token_id", "eos_token_id", "pad_token_id")
"""Fields of a config in which a drafter that was trained before may differ from a fresh one."""
EMBEDDING = "embed_tokens.weight"


def fresh_config(
    target: dict[str, Any], aux_layers: tuple[int, ...], draft_vocabulary: int, parameters: TrainParameters
) -> DrafterConfig:
    """The form of a drafter for a target (its config.json), as the parameters want it."""
    form = {name: getattr(parameters, name) for name in FORM if getattr(parameters, name)}
    return replace(drafter_for(target, aux_layers, draft_vocabulary), **form)


def start_of(
    context: StageContext, target: dict[str, Any], fresh: DrafterConfig, target_ids: Tensor
) -> ReferenceDrafter | None:
    """The drafter that the parameters of a training name, None where they want a fresh one. Raises FindingError."""
    parameters: TrainParameters = context.parameters
    if not parameters.start_from:
        return None
    return read_start(
        context.workspace / Path(parameters.start_from).expanduser(), target, fresh, target_ids, parameters
    )


def read_start(
    directory: Path, target: dict[str, Any], fresh: DrafterConfig, target_ids: Tensor, parameters: TrainParameters
) -> ReferenceDrafter:
    """The drafter in ``directory``, flat or nested, that a training with these parameters can go on from.

    Raises FindingError with everything in which it does not fit.
    """
    if not directory.is_dir():
        message = f"There is no drafter to start from in {directory}."
        fix = "Name a directory on the host with config.json and model.safetensors, or leave train.start_from empty."
        raise FindingError(error("drafter_missing", message, path="stages.train.start_from", fix=fix))
    check_drafter(directory, depth=1)
    found = of_directory(directory, target)
    if not any(found.config.windows):
        found = replace(found, config=replace(found.config, windows=()))
    problems = [*_config_differences(found.config, fresh, parameters), *_map_differences(found, target_ids, directory)]
    if not problems:
        problems = list(_tensor_differences(found))
    if problems:
        raise FindingError(*problems)
    return found


def _config_differences(found: DrafterConfig, fresh: DrafterConfig, parameters: TrainParameters) -> Iterator[Finding]:
    compared = {entry.name for entry in fields(DrafterConfig)} - {*OWN, "unnamed_aux_count", "draft_vocab_size"}
    asked = {name for name in FORM if getattr(parameters, name)}
    for name in sorted(compared | asked):
        wanted, actual = getattr(fresh, name), getattr(found, name)
        if wanted != actual:
            yield _mismatch(name, wanted, actual)


def _map_differences(found: ReferenceDrafter, target_ids: Tensor, directory: Path) -> Iterator[Finding]:
    if not torch.equal(found.target_ids, target_ids):
        yield error(
            "vocab_map_mismatch",
            "The drafter to start from drafts from another vocabulary than the vocab stage chose.",
            path="d2t",
            expected=f"{len(target_ids)} tokens",
            actual=f"{len(found.target_ids)} tokens, {_common(found.target_ids, target_ids)} of them the same",
            fix=f'Set vocab.adopt = "{directory}" to keep the drafter\'s own vocabulary.',
        )


def _common(left: Tensor, right: Tensor) -> int:
    return int(torch.isin(left, right).sum())


def _tensor_differences(found: ReferenceDrafter) -> Iterator[Finding]:
    with torch.device("meta"):
        empty = Drafter(found.config, torch.empty(1, found.config.hidden_size))
    wanted = {name: list(weight.shape) for name, weight in empty.named_parameters()}
    actual = {name: list(tensor.shape) for name, tensor in found.tensors.items() if name != EMBEDDING}
    for name in sorted({*wanted, *actual}):
        if wanted.get(name) != actual.get(name):
            yield _mismatch(name, wanted.get(name, "absent"), actual.get(name, "absent"))
        elif not bool(torch.isfinite(found.tensors[name]).all()):
            yield _mismatch(name, "finite values", "NaN or infinite values")


def _mismatch(path: str, expected: Any, actual: Any) -> Finding:
    return error(
        "start_drafter_mismatch",
        f"The drafter to start from does not fit this training in {path}: {actual} instead of {expected}.",
        path=path,
        expected=expected if isinstance(expected, (int, str, list)) else str(expected),
        actual=actual if isinstance(actual, (int, str, list)) else str(actual),
        fix="Start from a drafter of this target and these aux layers, or leave train.start_from empty.",
    )


def foreign_embedding(start: ReferenceDrafter, embedding: Tensor) -> Finding | None:
    """A warning where ``start`` brings another embedding than the target's [V, H], with which the training goes on."""
    own = start.tensors.get(EMBEDDING)
    if own is None or torch.allclose(own.float(), embedding.float(), atol=1e-2, rtol=1e-2):
        return None
    message = "The drafter to start from brings an embedding that is not the target's; the target's is used."
    return warning("start_embedding_differs", message, path=EMBEDDING)


def go_on_from(drafter: Drafter, start: ReferenceDrafter, conversations: Sequence[Conversation]) -> None:
    """Give the drafter the weights of ``start``; fc is scaled to the data where no ``fc_norm`` does so."""
    weights = {name: tensor.float() for name, tensor in start.tensors.items() if name != EMBEDDING}
    drafter.load_state_dict({**weights, "aux_scale": torch.ones_like(drafter.aux_scale)})
    with torch.no_grad():
        scale_exactly(drafter, conversations)
        drafter.fc.weight.mul_(drafter.aux_scale)


def scale_exactly(drafter: Drafter, conversations: Sequence[Conversation]) -> None:
    """Scale the aux channels about as those of a fresh drafter, by powers of two; after ``fc_norm`` not at all.

    What is multiplied by such a scale and divided by it stays the same to the last bit, in every dtype, so that a
    drafter computes exactly what it computed before. ``fc_norm`` has brought every state to one size already; scaled
    on top of that, a drafter of random weights learns slower in its first steps (benchmarks/README.md).
    """
    if drafter.fc_norm is not None:
        return
    scale_aux(drafter, conversations)
    exponents = drafter.aux_scale.log2().round().int()
    drafter.aux_scale.copy_(torch.ldexp(torch.ones_like(drafter.aux_scale), exponents))
