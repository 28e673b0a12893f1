"""Which tensors a drafter's file must hold: names, shapes and dtypes, and whether the engine reads them at all."""

from __future__ import annotations

import re
from typing import Dict, Iterator, Optional, Set, Tuple

from eagle3_backend.drafter.checks.subject import LAYER_NAME, Subject
from eagle3_backend.findings import Finding, error, warning

Sizes = Dict[str, int]
Shape = Tuple[Optional[int], ...]
"""None stands for a length that is judged elsewhere."""

MAPS = ("d2t", "t2d")
SHARED = ("embed_tokens.weight", "lm_head.weight", *MAPS)
"""Tensors that may be left out under conditions of their own."""

FLAG_WEIGHTS = {
    "norm_before_fc": re.compile(r"input_norm\..+"),
    "fc_norm": re.compile(r"fc_norm\..+"),
    "attention_bias": re.compile(r".+\.self_attn\..+\.bias"),
    "mlp_bias": re.compile(r".+\.mlp\..+\.bias"),
    "aux_input": re.compile(r"fc\..+"),
}
"""Fields of the canonical form that weights of these flat names go with."""

FLOATS = ("bfloat16", "float16", "float32", "float64")
_UNUSED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "mask_hidden")
"""Endings of names that both engines skip."""


def sizes_of(subject: Subject) -> Sizes:
    """Every size that a shape depends on, by the config's own key."""
    drafter = subject.drafter
    sizes = {
        "hidden_size": drafter.hidden_size,
        "target_hidden_size": drafter.target_hidden_size,
        "intermediate_size": drafter.intermediate_size,
        "num_attention_heads": drafter.heads,
        "num_key_value_heads": drafter.kv_heads,
        "head_dim": drafter.head_dim,
        "vocab_size": drafter.vocab_size,
        "draft_vocab_size": drafter.draft_vocab_size,
    }
    if drafter.mla:
        mla = drafter.mla
        sizes.update(
            q_lora_rank=mla.q_lora_rank or 0,
            kv_lora_rank=mla.kv_lora_rank,
            qk_nope_head_dim=mla.qk_nope_head_dim,
            qk_rope_head_dim=mla.qk_rope_head_dim,
            v_head_dim=mla.v_head_dim,
        )
    return sizes


def expected_shapes(subject: Subject, sizes: Sizes) -> Dict[str, Shape]:
    """Flat name to shape of every tensor that the engine has a place for, at these sizes."""
    drafter, width = subject.drafter, sizes["hidden_size"]
    shapes: Dict[str, Shape] = {
        "embed_tokens.weight": (sizes["vocab_size"], width),
        "lm_head.weight": (sizes["draft_vocab_size"], width),
        "norm.weight": (width,),
        "d2t": (sizes["draft_vocab_size"],),
        "t2d": (sizes["vocab_size"],),
    }
    if drafter.aux_input:
        shapes["fc.weight"] = (width, None)
    if drafter.norm_before_fc:
        shapes["input_norm.weight"] = (subject.aux_count * sizes["target_hidden_size"],)
    if drafter.fc_norm:
        shapes.update({f"fc_norm.{i}.weight": (sizes["target_hidden_size"],) for i in range(subject.aux_count)})
    for index in range(min(drafter.layers, max(subject.layers_held, 1))):
        shapes.update(_layer(subject, sizes, index))
    return shapes


def optional_names(subject: Subject) -> Set[str]:
    """Names that may be missing: those with a check of their own, and norms that layers after the first do not use."""
    unused = "hidden_norm" if subject.engine == "vllm" else "input_layernorm"
    return {*SHARED, *(f"layers.{index}.{unused}.weight" for index in range(1, subject.drafter.layers))}


def _layer(subject: Subject, sizes: Sizes, index: int) -> Dict[str, Shape]:
    drafter = subject.drafter
    prefix = f"layers.{index}." if index else "midlayer."
    width, inner = sizes["hidden_size"], sizes["intermediate_size"]
    shapes: Dict[str, Shape] = {
        "hidden_norm.weight": (width,),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    inputs = width if index else 2 * width
    attention = _latent_attention(sizes, inputs) if drafter.mla else _attention(subject, sizes, inputs)
    shapes.update({f"self_attn.{name}": shape for name, shape in attention.items()})
    if drafter.mlp_bias and subject.drafter_class and subject.drafter_class.mlp_bias:
        for name, length in (("gate_proj", inner), ("up_proj", inner), ("down_proj", width)):
            shapes[f"mlp.{name}.bias"] = (length,)
    return {prefix + name: shape for name, shape in shapes.items()}


def _attention(subject: Subject, sizes: Sizes, inputs: int) -> Dict[str, Shape]:
    known, width, span = subject.drafter_class, sizes["hidden_size"], sizes["head_dim"]
    queries, keys = sizes["num_attention_heads"] * span, sizes["num_key_value_heads"] * span
    shapes: Dict[str, Shape] = {
        "q_proj.weight": (queries, inputs),
        "k_proj.weight": (keys, inputs),
        "v_proj.weight": (keys, inputs),
        "o_proj.weight": (width, queries),
    }
    if known and known.qk_norm:
        shapes["q_norm.weight"] = shapes["k_norm.weight"] = (span,)
    if known and known.attention_bias and subject.drafter.attention_bias:
        shapes["q_proj.bias"] = (queries,)
        shapes["k_proj.bias"] = shapes["v_proj.bias"] = (keys,)
        if known.output_bias:
            shapes["o_proj.bias"] = (width,)
    return shapes


def _latent_attention(sizes: Sizes, inputs: int) -> Dict[str, Shape]:
    """Multi-head latent attention, with the names of DeepSeek-V2's `modeling_deepseek.py`."""
    heads, query_rank, rank = sizes["num_attention_heads"], sizes["q_lora_rank"], sizes["kv_lora_rank"]
    span = sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"]
    shapes: Dict[str, Shape] = {
        "kv_a_proj_with_mqa.weight": (rank + sizes["qk_rope_head_dim"], inputs),
        "kv_a_layernorm.weight": (rank,),
        "kv_b_proj.weight": (heads * (sizes["qk_nope_head_dim"] + sizes["v_head_dim"]), rank),
        "o_proj.weight": (sizes["hidden_size"], heads * sizes["v_head_dim"]),
    }
    if query_rank:
        shapes["q_a_proj.weight"] = (query_rank, inputs)
        shapes["q_a_layernorm.weight"] = (query_rank,)
        shapes["q_b_proj.weight"] = (heads * span, query_rank)
    else:
        shapes["q_proj.weight"] = (heads * span, inputs)
    return shapes


def check_missing(subject: Subject) -> Iterator[Finding]:
    """Tensors that the engine has a place for and the file lacks: they stay as they were made, without an error."""
    if not subject.weights_known:
        return
    expected = expected_shapes(subject, sizes_of(subject))
    for name, shape in expected.items():
        if name in subject.tensors or name in optional_names(subject) or _is_quantised(subject, name):
            continue
        if _is_told_by_flag(subject, name):
            continue
        yield error(
            "tensor_missing",
            f"The file has no {_shown(subject, name)}, and {subject.release} serves it untrained without an error.",
            path=_shown(subject, name),
            expected=list(shape),
            fix="Export the drafter again with all its weights, or correct the config that asks for this one.",
        )


def check_unknown(subject: Subject) -> Iterator[Finding]:
    """Tensors that the engine has no place for."""
    if subject.drafter_class is None:
        return
    expected = expected_shapes(subject, sizes_of(subject))
    for name in subject.tensors:
        if name in expected or name.endswith(_UNUSED) or _is_elsewhere(subject, name):
            continue
        if subject.quantised and _module(name) in {_module(known) for known in expected}:
            continue
        changes = _module(name) in {_module(known) for known in expected} or LAYER_NAME.fullmatch(name)
        stops = subject.can("refuses_unknown_weights")
        consequence = "stops at it" if stops else "skips it without a word, so what it was trained for is lost"
        yield (error if stops or changes else warning)(
            "tensor_unknown",
            f"{subject.release} has no place for {subject.file_names[name]} and {consequence}.",
            path=subject.file_names[name],
            fix="Remove it if it is a leftover; else serve with an engine and an architecture that know it.",
        )


def check_dtypes(subject: Subject) -> Iterator[Finding]:
    """Weights are floating point numbers unless the config says how they are quantised."""
    for name, tensor in subject.tensors.items():
        if name in MAPS or tensor.dtype in FLOATS or subject.quantised:
            continue
        yield error(
            "quantization_config_missing",
            f"{subject.file_names[name]} is {tensor.dtype}, but no quantization_config says how to read it: its codes "
            "are taken for values.",
            path=subject.file_names[name],
            expected="bfloat16",
            actual=tensor.dtype,
            fix="Add the quantization_config that it was written with, or export it unquantised.",
        )


def _is_elsewhere(subject: Subject, name: str) -> bool:
    """Whether another check tells of this tensor: by its flag, or by its layer's number."""
    match = LAYER_NAME.fullmatch(name)
    beyond = match is not None and int(match["index"] or 0) >= subject.drafter.layers
    flags = (flag for flag, pattern in FLAG_WEIGHTS.items() if pattern.fullmatch(name))
    return beyond or any(not getattr(subject.drafter, flag) for flag in flags)


def _is_told_by_flag(subject: Subject, name: str) -> bool:
    """Whether all weights of a flag are missing, so that the flag is at fault."""
    for flag, pattern in FLAG_WEIGHTS.items():
        if flag != "aux_input" and pattern.fullmatch(name):
            return not any(pattern.fullmatch(other) for other in subject.tensors)
    return False


def _is_quantised(subject: Subject, name: str) -> bool:
    module = _module(name)
    return subject.quantised and any(_module(other) == module for other in subject.tensors)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _shown(subject: Subject, name: str) -> str:
    """A flat name as this file would spell it."""
    if name in subject.file_names:
        return subject.file_names[name]
    if name.startswith("midlayer.") and subject.numbers_first_layer:
        return "layers.0." + name[len("midlayer.") :]
    return name
