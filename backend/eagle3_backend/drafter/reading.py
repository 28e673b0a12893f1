"""Reads a drafter's config.json of either layout into the canonical form, as the engines read it.

Every value comes with the place that it was read from; what no field takes is kept, so that a conversion can carry it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Tuple

from eagle3_backend.drafter import keys, rope
from eagle3_backend.drafter.config import DEEPSEEK, LLAMA, DrafterConfig, MlaShape, Packaging
from eagle3_backend.drafter.fields import Fields
from eagle3_backend.drafter.keys import LAYER, READ_DEFAULTS, SPECULATORS
from eagle3_backend.drafter.packaging import read_packaging
from eagle3_backend.drafter.reading_aux import Ids, read_aux_layers
from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding, FindingError, error, warning

FLAT, NESTED = "flat", "nested"


@dataclass(frozen=True)
class Reading:
    """A drafter as a file describes it.

    ``paths`` says for each field of `DrafterConfig` and `Packaging` which key of the file holds it; a field in
    ``absent`` took the default that engines take, and its path is where it would have been. ``unknown`` are the keys
    that no reader here knows, by dotted path. ``engine_ids`` is the list under ``eagle_config`` as written.
    ``findings`` are what the file leaves open or contradicts by itself, whatever the engine.
    """

    drafter: DrafterConfig
    packaging: Packaging
    layout: str
    findings: Tuple[Finding, ...]
    paths: Mapping[str, str]
    absent: Tuple[str, ...]
    unknown: Mapping[str, Any]
    engine_ids: Tuple[int, ...] = ()


def layout_of(config: Mapping[str, Any]) -> str:
    """`nested` for a config of speculators, else `flat`.

    A file with ``model_type`` at the top level is flat unless it holds a layer config: vLLM parses it by that type.
    """
    if isinstance(config.get(LAYER), Mapping):
        return NESTED
    speculators = SPECULATORS in config or "speculators_model_type" in config
    return NESTED if speculators and "model_type" not in config else FLAT


def read_config(config: Mapping[str, Any], target: Optional[Mapping[str, Any]] = None) -> Reading:
    """The drafter behind a config.json, for a target whose config.json is ``target`` where that is known.

    Without the target, ids that are written for SGLang alone are read by the rule of most targets, with a finding.
    Raises FindingError `drafter_config_invalid` for a config that lacks a size or holds a value of a wrong kind.
    """
    try:
        return _read(config, Target.of(target) if target else None)
    except keys.InvalidValue as problem:
        raise FindingError(
            error(
                "drafter_config_invalid",
                f"The drafter's config cannot be read: {problem}.",
                path=problem.path,
                expected="a flat EAGLE-3 config, or a nested one of speculators",
                fix="Write the key as the drafter was trained, or name another file.",
            )
        ) from problem


def _read(config: Mapping[str, Any], target: Optional[Target]) -> Reading:
    layout = layout_of(config)
    fields = Fields(config, layout == NESTED, target)
    aux_layers, unnamed, engine_ids = read_aux_layers(fields)
    drafter = _drafter(fields, aux_layers, unnamed)
    packaging, unknown = read_packaging(fields, drafter.draft_class)
    _check_layout(fields)
    return Reading(
        drafter,
        packaging,
        layout,
        tuple(fields.findings),
        fields.paths,
        tuple(fields.absent),
        unknown,
        engine_ids,
    )


def _drafter(fields: Fields, aux_layers: Ids, unnamed_aux_count: int) -> DrafterConfig:
    of_layer, of_top, top, layer = fields.of_layer, fields.of_top, fields.top, fields.layer
    hidden = of_layer("hidden_size", keys.integer, ...)
    heads = of_layer("heads", keys.integer, ..., "num_attention_heads")
    vocabulary = of_layer("vocab_size", keys.integer, ...)
    layers = of_layer("layers", keys.integer, READ_DEFAULTS["num_hidden_layers"], "num_hidden_layers")
    draft_class = _draft_class(fields)
    mla = _mla(fields) if draft_class == DEEPSEEK else None
    draft_vocabulary = fields.value(
        "draft_vocab_size", keys.integer, vocabulary, (top, "draft_vocab_size"), (layer, "truncated_vocab_size")
    )
    quantization = ((layer, "quantization_config"), (top, "quantization_config"))
    return DrafterConfig(
        hidden_size=hidden,
        target_hidden_size=of_top("target_hidden_size", keys.integer, hidden),
        intermediate_size=of_layer("intermediate_size", keys.integer, READ_DEFAULTS["intermediate_size"]),
        heads=heads,
        kv_heads=of_layer("kv_heads", keys.integer, heads, "num_key_value_heads"),
        head_dim=mla.head_dim if mla else of_layer("head_dim", keys.integer, hidden // heads),
        vocab_size=vocabulary,
        draft_vocab_size=draft_vocabulary,
        aux_layers=aux_layers,
        rms_norm_eps=of_layer("rms_norm_eps", keys.number, READ_DEFAULTS["rms_norm_eps"]),
        max_position_embeddings=of_layer(
            "max_position_embeddings", keys.integer, READ_DEFAULTS["max_position_embeddings"]
        ),
        rope=_rope(fields),
        draft_class=draft_class,
        layers=layers,
        mla=mla,
        unnamed_aux_count=unnamed_aux_count,
        aux_input=fields.value("aux_input", keys.boolean, True, (fields.eagle, "use_aux_hidden_state")),
        norm_before_residual=_norm_before_residual(fields),
        norm_before_fc=_norm_before_fc(fields),
        fc_norm=fields.value("fc_norm", keys.boolean, False, *_true_first((top, "fc_norm"), (top, "use_aux_norm"))),
        norm_output=of_top("norm_output", keys.boolean, False),
        windows=_windows(fields, layers),
        attention_bias=of_layer("attention_bias", keys.boolean, READ_DEFAULTS["attention_bias"]),
        mlp_bias=of_layer("mlp_bias", keys.boolean, READ_DEFAULTS["mlp_bias"]),
        tie_word_embeddings=fields.value(
            "tie_word_embeddings",
            keys.boolean,
            READ_DEFAULTS["tie_word_embeddings"],
            *_true_first((top, "tie_word_embeddings"), (layer, "tie_word_embeddings")),
        ),
        target_head="draft_vocab_size" in top.values and "draft_vocab_size" in fields.absent,
        hidden_act=of_layer("hidden_act", keys.text, READ_DEFAULTS["hidden_act"]),
        quantization=fields.value("quantization", keys.mapping, None, *quantization),
        bos_token_id=of_layer("bos_token_id", keys.anything, None),
        eos_token_id=of_layer("eos_token_id", keys.anything, None),
        pad_token_id=of_layer("pad_token_id", keys.anything, None),
    )


def _true_first(*places: Tuple[keys.Level, str]) -> Tuple[Tuple[keys.Level, str], ...]:
    """Places of a flag that holds where any of its names is true."""
    return tuple(sorted(places, key=lambda place: place[0].values.get(place[1]) is not True))


def _draft_class(fields: Fields) -> str:
    """By model type in the nested layout, by architecture in the flat one, as vLLM chooses its class.

    vLLM puts Eagle3 before a name that neither starts nor ends with it.
    """
    model_type = fields.of_layer("draft_class", keys.text, LLAMA, "model_type")
    architectures = keys.texts(fields.top.take("architectures") or [], "architectures")
    if fields.nested or not architectures:
        return str(model_type)
    fields.paths["draft_class"] = "architectures[0]"
    name = architectures[0]
    return keys.DRAFT_CLASSES.get(name) or keys.DRAFT_CLASSES.get("Eagle3" + name) or name


def _mla(fields: Fields) -> MlaShape:
    layer = fields.layer
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = {name: keys.integer(layer.take(name), layer.path(name)) for name in names}
    query = layer.take("q_lora_rank")
    fields.paths["mla"] = layer.path("kv_lora_rank")
    return MlaShape(None if query is None else keys.integer(query, layer.path("q_lora_rank")), **sizes)


def _rope(fields: Fields) -> rope.Rope:
    layer = fields.layer
    spellings = ("rope_theta", rope.OLD, rope.NEW)
    if not any([layer.take(key) for key in spellings]):
        fields.absent.append("rope")
    fields.paths["rope"] = layer.path(rope.spelled_at(layer.values))
    for key in (rope.OLD, rope.NEW):
        inner = keys.mapping(layer.values.get(key) or {}, layer.path(key))
        if inner.get("rope_theta") is not None:
            keys.number(inner["rope_theta"], layer.path(f"{key}.rope_theta"))
    if layer.values.get("rope_theta") is not None:
        keys.number(layer.values["rope_theta"], layer.path("rope_theta"))
    fields.findings += rope.check_spellings(layer.values, layer.prefix)
    fields.findings += rope.check_members(layer.values, layer.prefix)
    return rope.rope_of(layer.values)


def _norm_before_residual(fields: Fields) -> bool:
    value = fields.of_top("norm_before_residual", keys.boolean, fields.nested)
    if fields.nested and "norm_before_residual" in fields.absent:
        fields.tell(
            warning,
            "norm_before_residual_missing",
            "norm_before_residual is not there: vLLM takes it for true in a nested config, for false in a flat one.",
            path="norm_before_residual",
            actual=None,
            fix="Write norm_before_residual as the drafter was trained.",
        )
    return bool(value)


def _norm_before_fc(fields: Fields) -> bool:
    """The value under ``eagle_config`` wins, as in both engines."""
    places = ((fields.eagle, "norm_before_fc"), (fields.top, "norm_before_fc"))
    inner, outer = (level.values.get(key) for level, key in places)
    if inner is not None and outer is not None and inner != outer:
        fields.tell(
            warning,
            "norm_before_fc_contradiction",
            "norm_before_fc differs between the top level and eagle_config, which wins.",
            path=fields.eagle.path("norm_before_fc"),
            expected=outer,
            actual=inner,
            fix="Write the same value in both places.",
        )
    ordered = places if inner is not None else places[::-1]
    return bool(fields.value("norm_before_fc", keys.boolean, False, *ordered))


def _windows(fields: Fields, layers: int) -> Tuple[Optional[int], ...]:
    """By ``layer_types``; without them a window is in use only where ``use_sliding_window`` says so."""
    layer = fields.layer
    size = fields.of_layer("windows", keys.integer, None, "sliding_window")
    kinds, in_use = layer.take("layer_types"), layer.take("use_sliding_window")
    if kinds is None:
        kinds = ["sliding_attention"] * layers if in_use is True else []
    kinds = keys.texts(kinds, layer.path("layer_types"))
    windows = tuple(size if kind == "sliding_attention" else None for kind in kinds)
    if any(windows):
        return windows
    # A window that is not in use means nothing here: the keys travel as they are.
    layer.asked -= {"sliding_window", "layer_types", "use_sliding_window"}
    return ()


def _check_layout(fields: Fields) -> None:
    """A file of both layouts at once, or of another algorithm than EAGLE-3."""
    values = fields.top.values
    algorithm = values.get("speculators_model_type", "eagle3")
    if algorithm != "eagle3":
        fields.tell(
            error,
            "speculators_algorithm_unsupported",
            f"This is a drafter of the algorithm {algorithm}, and only those of EAGLE-3 are judged here.",
            path="speculators_model_type",
            expected="eagle3",
            actual=algorithm,
            fix="Name an EAGLE-3 drafter; an engine may serve this one all the same.",
        )
    if "model_type" in values and (fields.nested or SPECULATORS in values):
        fields.tell(
            error,
            "layout_contradiction",
            "The file has both model_type and a speculators config at the top level: vLLM takes the verifier from one "
            "and parses the drafter by the other.",
            path="model_type",
            expected=None,
            actual=values["model_type"],
            fix="Remove model_type from a nested file, or the speculators keys from a flat one.",
        )
