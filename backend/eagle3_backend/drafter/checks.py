"""Checks of a drafter's tensors against its config, from the header and the two vocabulary maps alone."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.drafter.aux_layers import check_ids
from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.layouts import FLAT_PREFIX
from eagle3_backend.drafter.reading import Reading
from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding, error

Shapes = Mapping[str, Tuple[int, ...]]


def expected_shapes(config: DrafterConfig) -> Dict[str, Tuple[int, ...]]:
    """Name (flat layout) to shape of every tensor that a drafter file must hold, without the embedding.

    The embedding is left out where the drafter is as wide as its target: engines share the target's. A wider or
    narrower drafter needs its own.
    """
    width, inputs = config.hidden_size, 2 * config.hidden_size
    shapes: Dict[str, Tuple[int, ...]] = {
        "fc.weight": (width, len(config.aux_layers) * config.target_hidden_size),
        FLAT_PREFIX + "hidden_norm.weight": (width,),
        FLAT_PREFIX + "input_layernorm.weight": (width,),
        FLAT_PREFIX + "self_attn.q_proj.weight": (config.heads * config.head_dim, inputs),
        FLAT_PREFIX + "self_attn.k_proj.weight": (config.kv_heads * config.head_dim, inputs),
        FLAT_PREFIX + "self_attn.v_proj.weight": (config.kv_heads * config.head_dim, inputs),
        FLAT_PREFIX + "self_attn.o_proj.weight": (width, config.heads * config.head_dim),
        FLAT_PREFIX + "post_attention_layernorm.weight": (width,),
        FLAT_PREFIX + "mlp.gate_proj.weight": (config.intermediate_size, width),
        FLAT_PREFIX + "mlp.up_proj.weight": (config.intermediate_size, width),
        FLAT_PREFIX + "mlp.down_proj.weight": (width, config.intermediate_size),
        "norm.weight": (width,),
        "lm_head.weight": (config.draft_vocab_size, width),
    }
    if config.norm_before_fc:
        shapes["input_norm.weight"] = (len(config.aux_layers) * config.target_hidden_size,)
    if config.fc_norm:
        shapes.update({f"fc_norm.{i}.weight": (config.target_hidden_size,) for i in range(len(config.aux_layers))})
    if config.draft_vocab_size != config.vocab_size:
        shapes["d2t"] = (config.draft_vocab_size,)
        shapes["t2d"] = (config.vocab_size,)
    if config.hidden_size != config.target_hidden_size:
        shapes["embed_tokens.weight"] = (config.vocab_size, width)
    return shapes


_MISSING = {
    "lm_head.weight": "lm_head_missing",
    "embed_tokens.weight": "embed_tokens_missing",
    "d2t": "d2t_missing",
    "t2d": "t2d_missing",
}


def check_shapes(config: DrafterConfig, shapes: Shapes) -> List[Finding]:
    """Tensors that are missing, unknown or of another shape. ``shapes`` is by flat name."""
    findings = []
    expected = expected_shapes(config)
    for name, wanted in expected.items():
        found = shapes.get(name)
        if found is None:
            code = _MISSING.get(name, "tensor_missing")
            findings.append(error(code, f"The drafter has no {name}.", path=name, expected=list(wanted)))
        elif tuple(found) != wanted:
            code = "fc_input_mismatch" if name == "fc.weight" else "tensor_shape"
            message = f"{name} is {list(found)}, the config asks for {list(wanted)}."
            findings.append(error(code, message, path=name, expected=list(wanted), actual=list(found)))
    for name in sorted(set(shapes) - set(expected) - {"embed_tokens.weight"}):
        findings.append(error("tensor_unknown", f"No engine knows the tensor {name}.", path=name))
    return findings


def check_aux_layers(config: DrafterConfig, target_layers: int) -> List[Finding]:
    """Ids must be ascending (they order the columns of fc), distinct, and streams that the target has."""
    return check_ids(config.aux_layers, target_layers)


def check_against_target(reading: Reading, target: Target) -> List[Finding]:
    """Whether a drafter belongs to a target of this width and vocabulary, and says which layers it wants."""
    findings = list(reading.findings)
    drafter = reading.drafter
    for code, name, actual, expected in (
        ("hidden_size_mismatch", "hidden_size", drafter.target_hidden_size, target.hidden_size),
        ("vocab_size_mismatch", "vocab_size", drafter.vocab_size, target.vocab_size),
    ):
        if actual != expected:
            message = f"The drafter was made for a target of {name} {actual}; this one has {expected}."
            path = reading.paths[name]
            findings.append(error(code, message, path=path, expected=expected, actual=actual))
    return findings


def check_vocabulary_map(d2t: Sequence[int], t2d: Optional[Sequence[int]], vocab_size: int) -> List[Finding]:
    """Exact check of a reduced vocabulary: ``d2t`` holds target id minus draft id, ``t2d`` one flag a target id.

    Faults are told apart in the order in which they explain each other; the first is returned.
    """
    size = len(d2t)
    ids = [draft + offset for draft, offset in enumerate(d2t)]
    if size == vocab_size:
        return []
    if not any(d2t):
        return [error("d2t_placeholder", "d2t is all zero although the draft vocabulary is reduced.", path="d2t")]
    kept = None if t2d is None else [target for target, flag in enumerate(t2d) if flag]
    rising = _rises(d2t)
    if (kept is not None and kept == list(d2t) != ids) or (kept is None and rising and max(ids) >= vocab_size):
        message = "d2t holds target ids; the format stores target id minus draft id."
        return [error("d2t_absolute_ids", message, path="d2t", fix="Subtract each entry's own index.")]
    if kept is not None and len(kept) != size:
        message = f"t2d marks {len(kept)} target ids, the draft vocabulary has {size}."
        return [error("t2d_count_mismatch", message, path="t2d", expected=size, actual=len(kept))]
    if ids[0] < 0 or ids[-1] >= vocab_size or not _rises(ids):
        message = f"d2t plus draft ids must rise strictly within 0..{vocab_size - 1}."
        return [error("vocab_map_inconsistent", message, path="d2t")]
    if kept is not None and kept != ids:
        return [error("vocab_map_inconsistent", "d2t and t2d name different target ids.", path="d2t")]
    return []


def _rises(values: Sequence[int]) -> bool:
    return all(values[index] < values[index + 1] for index in range(len(values) - 1))
