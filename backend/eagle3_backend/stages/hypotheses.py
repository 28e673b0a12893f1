"""Drafters that an engine might be running by mistake instead of the one that was trained.

Each is the reference with one thing changed, as a lost key, a wrong count or a misread map changes it. The one whose
replay equals what the engine did names the fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from eagle3_backend.drafter.aux_layers import default_layers
from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.stages.reference_drafter import ReferenceDrafter


@dataclass(frozen=True)
class Hypothesis:
    """One mistake: the finding code that names it, what the engine would be doing, and the drafter that this makes."""

    code: str
    path: str
    words: str
    fix: str
    drafter: ReferenceDrafter


def hypotheses(reference: ReferenceDrafter, layers: int) -> list[Hypothesis]:
    """All that apply to this drafter beside a target of ``layers`` layers."""
    return [*_layers(reference, layers), *_norms(reference), *_rope(reference), *_maps(reference), *_head(reference)]


def needed_layers(reference: ReferenceDrafter, candidates: list[Hypothesis]) -> set[int]:
    """Every layer whose states a replay of these needs."""
    return {layer for each in (reference, *(entry.drafter for entry in candidates)) for layer in each.config.aux_layers}


def _layers(reference: ReferenceDrafter, layers: int) -> Iterator[Hypothesis]:
    ids = reference.config.aux_layers
    for shift, words in ((-1, "one layer early"), (1, "one layer late")):
        moved = tuple(layer + shift for layer in ids)
        if moved[0] >= 0 and moved[-1] <= layers:
            yield Hypothesis(
                "aux_layers_offset",
                "eagle_aux_hidden_state_layer_ids",
                f"reads the aux layers {words}, {list(moved)} instead of {list(ids)}",
                "Write the ids as this engine counts them; `eagle3-tui convert` does.",
                replace(reference, config=replace(reference.config, aux_layers=moved)),
            )
    default = default_layers(layers)
    if default != ids and len(default) == len(ids):
        yield Hypothesis(
            "aux_layers_missing",
            "eagle_aux_hidden_state_layer_ids",
            f"takes its default aux layers {list(default)} instead of {list(ids)}",
            "Write the aux layer ids into the config where this engine looks for them.",
            replace(reference, config=replace(reference.config, aux_layers=default)),
        )


def _norms(reference: ReferenceDrafter) -> Iterator[Hypothesis]:
    config = reference.config
    for name in ("norm_before_residual", "norm_output"):
        flag = not getattr(config, name)
        code = "norm_before_residual_unsupported" if name == "norm_before_residual" else "norm_flag_ignored"
        yield Hypothesis(
            code,
            name,
            f"{'applies' if flag else 'ignores'} {name}",
            f"Write {name} = {str(not flag).lower()} explicitly; SGLang has no norm_before_residual at all.",
            replace(reference, config=_flagged(config, name, flag)),
        )
    for name, prefix in (("norm_before_fc", "input_norm."), ("fc_norm", "fc_norm.")):
        if getattr(config, name):
            kept = {key: tensor for key, tensor in reference.tensors.items() if not key.startswith(prefix)}
            yield Hypothesis(
                "norm_flag_ignored",
                name,
                f"ignores {name}",
                f"Write {name} = true at the top level of the config, norm_before_fc in eagle_config too.",
                replace(reference, config=_flagged(config, name, False), tensors=kept),
            )


def _flagged(config: DrafterConfig, name: str, flag: bool) -> DrafterConfig:
    changes: dict[str, Any] = {name: flag}
    return replace(config, **changes)


def _rope(reference: ReferenceDrafter) -> Iterator[Hypothesis]:
    rope = reference.config.rope
    plain = Rope()
    if rope.kind != plain.kind:
        yield Hypothesis(
            "rope_scaling_incomplete",
            "rope_scaling",
            f"rotates without the {rope.kind} scaling",
            "Write rope_scaling with every member of its kind.",
            replace(reference, config=replace(reference.config, rope=Rope(rope.theta))),
        )
    if rope.theta != plain.theta:
        yield Hypothesis(
            "rope_theta_mismatch",
            "rope_theta",
            f"rotates with base {plain.theta:g} instead of {rope.theta:g}",
            "Write rope_theta at the top level of the layer's config.",
            replace(reference, config=replace(reference.config, rope=plain)),
        )


def _maps(reference: ReferenceDrafter) -> Iterator[Hypothesis]:
    if reference.config.draft_vocab_size == reference.config.vocab_size:
        return
    draft_ids = torch.arange(len(reference.target_ids))
    fix = "Write d2t as target id minus draft id, int64; `eagle3-tui check` verifies it."
    yield Hypothesis(
        "d2t_placeholder",
        "d2t",
        "takes draft ids for target ids: its d2t is missing or zero",
        fix,
        replace(reference, target_ids=draft_ids),
    )
    yield Hypothesis(
        "d2t_absolute_ids",
        "d2t",
        "adds draft ids to a d2t that already holds target ids",
        fix,
        replace(reference, target_ids=(reference.target_ids + draft_ids).clamp_max(reference.config.vocab_size - 1)),
    )


def _head(reference: ReferenceDrafter) -> Iterator[Hypothesis]:
    yield Hypothesis(
        "lm_head_missing",
        "lm_head.weight",
        "has no head, or one that was never loaded: it accepts what a head of zeros would",
        "Export with lm_head.weight, under the name that this engine reads.",
        replace(
            reference,
            tensors={**reference.tensors, "lm_head.weight": torch.zeros_like(reference.tensors["lm_head.weight"])},
        ),
    )
