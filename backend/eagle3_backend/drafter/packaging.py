"""What a drafter's file says beside the network: read last, as it takes every key that no field has asked for."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from eagle3_backend.drafter import keys, rope
from eagle3_backend.drafter.config import LLAMA, QWEN3, Packaging
from eagle3_backend.drafter.fields import Fields
from eagle3_backend.drafter.keys import NESTED_IN_FLAT, SPECULATORS, Level


def read_packaging(fields: Fields, draft_class: str) -> Tuple[Packaging, Dict[str, Any]]:
    """The rest of the file, and by dotted path what of it nobody knows.

    A flat file that was converted from a nested one carries the latter's own keys under one private key.
    """
    top, layer = fields.top, fields.layer
    places = [(level, key) for level in (top, layer) for key in ("dtype", "torch_dtype")]
    dtype = fields.value("dtype", keys.text, None, *places)
    carried = top if fields.nested else _inner(top, NESTED_IN_FLAT)
    speculators = _inner(carried, SPECULATORS)
    verifier = _inner(speculators, "verifier")
    path = speculators.path("proposal_methods")
    methods = keys.objects(speculators.take("proposal_methods") or [{}], path)
    method = Level(methods[0], f"{path}[0].")
    name = fields.value("verifier", keys.text, None, (verifier, "name_or_path"))
    architectures = fields.value("verifier_architectures", keys.texts, (), (verifier, "architectures"))
    depth = fields.value("speculative_tokens", keys.integer, None, (method, "speculative_tokens"))

    in_layer = _beyond(layer.rest(), keys.LAYER_DEFAULTS)
    in_nested = _beyond(carried.rest(), keys.NESTED_DEFAULTS)
    if fields.nested and "transformers_version" in in_nested:
        in_layer["transformers_version"] = in_nested.pop("transformers_version")
    proposal = _beyond(method.rest(), keys.PROPOSAL_DEFAULTS)
    in_speculators = _beyond(speculators.rest(), keys.SPECULATORS_DEFAULTS)
    if verifier.rest():
        in_speculators["verifier"] = verifier.rest()
    if proposal or methods[1:]:
        in_speculators["proposal_methods"] = [proposal, *methods[1:]]
    if in_speculators:
        in_nested[SPECULATORS] = in_speculators
    packaging = Packaging(
        dtype=dtype,
        verifier=name,
        verifier_architectures=architectures,
        speculative_tokens=depth,
        rope_parameters=bool(layer.values.get(rope.NEW)),
        model_type=_model_type(layer, draft_class),
        layer_keys=in_layer,
        eagle_keys=fields.eagle.rest(),
        nested_keys=in_nested,
    )
    return packaging, _unknown(layer, fields.eagle, *([top] if fields.nested else []))


def _model_type(layer: Level, draft_class: str) -> Optional[str]:
    """What has to travel: engines read Llama and Qwen3 drafters as such whatever a file says."""
    usual = draft_class in (LLAMA, QWEN3) or layer.values.get("model_type") == keys.model_type_of(draft_class)
    return None if usual else layer.values.get("model_type")


def _inner(level: Level, key: str) -> Level:
    return Level(keys.mapping(level.take(key) or {}, level.path(key)), level.path(key) + ".")


def _unknown(*levels: Level) -> Dict[str, Any]:
    return {level.path(key): value for level in levels for key, value in level.rest().items() if key not in keys.KNOWN}


def _beyond(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Dict[str, Any]:
    """Without what a writer puts there anyway."""
    return {key: value for key, value in values.items() if key not in defaults or value != defaults[key]}
