"""Whether a drafter's quantisation is written where it is needed, and only there."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional

from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.drafter.checks.tensors import FLOATS, MAPS
from eagle3_backend.findings import Finding, error, warning

_MARKS = ("_scale", "scales", "qweight", "qzeros", "weight_packed", "weight_scale_inv", "absmax", "SCB")
"""Endings of tensor names that quantisation methods add."""


def check_plain_weights(subject: Subject) -> Iterator[Finding]:
    """A method is applied to every weight, so plain ones are taken for codes."""
    if not subject.quantised or not subject.weights_known or not subject.tensors:
        return
    for name, tensor in subject.tensors.items():
        if name.endswith(_MARKS) or (name not in MAPS and tensor.dtype not in FLOATS):
            return
    yield error(
        "quantization_config_on_plain_weights",
        "The config says that the drafter is quantised, but none of its weights is: the engine looks for codes and "
        "scales that are not there.",
        path=subject.path("quantization"),
        actual=_method(subject.drafter.quantization),
        fix="Remove quantization_config; it was most likely copied from the target.",
    )


def check_cache_scales(subject: Subject) -> Iterator[Finding]:
    """An FP8 cache without scales rounds keys and values as they come."""
    if not subject.quantised or not subject.weights_known or not _wants_fp8_cache(subject.drafter.quantization or {}):
        return
    if not any(name.endswith(("k_scale", "v_scale", "k_proj.output_scale")) for name in subject.tensors):
        yield warning(
            "draft_kv_fp8",
            "The config asks for an FP8 cache, and the file has no scales for it: keys and values are rounded as they "
            "come, which lowers acceptance.",
            path=subject.path("quantization"),
            fix="Serve with a cache in bfloat16, or calibrate the scales.",
        )


def _wants_fp8_cache(config: Mapping[str, Any]) -> bool:
    scheme = config.get("kv_cache_scheme")
    text = f"{config.get('kv_cache_quant_algo', '')}{config.get('kv_cache_quant_method', '')}"
    return "fp8" in text.lower() or (isinstance(scheme, Mapping) and scheme.get("num_bits") == 8)


def _method(config: Optional[Mapping[str, Any]]) -> Any:
    return (config or {}).get("quant_method") or (config or {}).get("quant_algo")
