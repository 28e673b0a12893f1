"""Reads a drafter's config.json of either layout into the canonical form, as the engines read it.

Every value comes with the place that it was read from; what no field takes is kept, so that a conversion can carry it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.drafter import keys, rope
from eagle3_backend.drafter.aux_layers import IDS, SGLANG_COUNTING, default_layers, from_sglang
from eagle3_backend.drafter.config import DEEPSEEK, DEFAULT_AUX_COUNT, LLAMA, DrafterConfig, MlaShape, Packaging
from eagle3_backend.drafter.keys import EAGLE, LAYER, NESTED_IN_FLAT, SPECULATORS, Level
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
        return _Reader(config, Target.of(target) if target else None).read()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        raise FindingError(
            error(
                "drafter_config_invalid",
                f"The drafter's config cannot be read: {problem}.",
                path=getattr(problem, "path", "config.json"),
                expected="a flat EAGLE-3 config, or a nested one of speculators",
                actual=str(problem),
            )
        ) from problem


Kind = Callable[[Any, str], Any]


class _Reader:
    """One pass over one config: `read` may be called once."""

    def __init__(self, config: Mapping[str, Any], target: Optional[Target]) -> None:
        self.layout = layout_of(config)
        self.nested = self.layout == NESTED
        self.target = target
        self.top = self.layer = Level(config, "")
        if self.nested:
            self.layer = Level(keys.mapping(self.top.take(LAYER), LAYER), LAYER + ".")
        eagle = self.layer.path(EAGLE)
        self.eagle = Level(keys.mapping(self.layer.take(EAGLE) or {}, eagle), eagle + ".")
        self.findings: List[Finding] = []
        self.paths: Dict[str, str] = {}
        self.absent: List[str] = []

    def read(self) -> Reading:
        drafter = self._drafter()
        packaging, unknown = self._packaging()
        self._check_layout()
        engine_ids = tuple(self.eagle.values.get(IDS) or ())
        return Reading(
            drafter, packaging, self.layout, tuple(self.findings), self.paths, tuple(self.absent), unknown, engine_ids
        )

    def value(self, name: str, kind: Kind, default: Any, *places: Tuple[Level, str]) -> Any:
        """The first of ``places`` that holds a value; all of them count as read. Default `...`: it must be there."""
        self.paths[name] = places[0][0].path(places[0][1])
        found = [(level.path(key), level.take(key)) for level, key in places]
        for path, taken in found:
            if taken is not None:
                self.paths[name] = path
                return kind(taken, path)
        if default is ...:
            raise keys.InvalidValue(self.paths[name], "is missing")
        self.absent.append(name)
        return default

    def of_layer(self, name: str, kind: Kind, default: Any, key: str = "") -> Any:
        return self.value(name, kind, default, (self.layer, key or name))

    def of_top(self, name: str, kind: Kind, default: Any) -> Any:
        return self.value(name, kind, default, (self.top, name))

    def _drafter(self) -> DrafterConfig:
        hidden = self.of_layer("hidden_size", keys.integer, ...)
        heads = self.of_layer("heads", keys.integer, ..., "num_attention_heads")
        vocabulary = self.of_layer("vocab_size", keys.integer, ...)
        layers = self.of_layer("layers", keys.integer, 32, "num_hidden_layers")
        draft_class = self._draft_class()
        mla = self._mla() if draft_class == DEEPSEEK else None
        span = mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else hidden // heads
        aux_layers, unnamed = self._aux()
        top, layer = self.top, self.layer
        draft_vocabulary = self.value(
            "draft_vocab_size", keys.integer, vocabulary, (top, "draft_vocab_size"), (layer, "truncated_vocab_size")
        )
        return DrafterConfig(
            hidden_size=hidden,
            target_hidden_size=self.of_top("target_hidden_size", keys.integer, hidden),
            intermediate_size=self.of_layer("intermediate_size", keys.integer, 11008),
            heads=heads,
            kv_heads=self.of_layer("kv_heads", keys.integer, heads, "num_key_value_heads"),
            head_dim=span if mla else self.of_layer("head_dim", keys.integer, span),
            vocab_size=vocabulary,
            draft_vocab_size=draft_vocabulary,
            aux_layers=aux_layers,
            rms_norm_eps=self.of_layer("rms_norm_eps", keys.number, 1e-6),
            max_position_embeddings=self.of_layer("max_position_embeddings", keys.integer, 2048),
            rope=self._rope(),
            draft_class=draft_class,
            layers=layers,
            mla=mla,
            unnamed_aux_count=unnamed,
            aux_input=self.value("aux_input", keys.boolean, True, (self.eagle, "use_aux_hidden_state")),
            norm_before_residual=self._norm_before_residual(),
            norm_before_fc=self._norm_before_fc(),
            fc_norm=self.value("fc_norm", keys.boolean, False, (top, "fc_norm"), (top, "use_aux_norm")),
            norm_output=self.of_top("norm_output", keys.boolean, False),
            windows=self._windows(layers),
            attention_bias=self.of_layer("attention_bias", keys.boolean, False),
            mlp_bias=self.of_layer("mlp_bias", keys.boolean, False),
            tie_word_embeddings=self._tie(),
            target_head="draft_vocab_size" in top.values and "draft_vocab_size" in self.absent,
            hidden_act=self.of_layer("hidden_act", keys.text, "silu"),
            quantization=self.value(
                "quantization", keys.mapping, None, (layer, "quantization_config"), (top, "quantization_config")
            ),
            bos_token_id=self.of_layer("bos_token_id", keys.anything, None),
            eos_token_id=self.of_layer("eos_token_id", keys.anything, None),
            pad_token_id=self.of_layer("pad_token_id", keys.anything, None),
        )

    def _draft_class(self) -> str:
        """By model type in the nested layout, by architecture in the flat one, as vLLM chooses its class.

        vLLM puts Eagle3 before a name that neither starts nor ends with it.
        """
        model_type = self.of_layer("draft_class", keys.text, LLAMA, "model_type")
        architectures = self.top.take("architectures") or []
        if self.nested or not architectures:
            return str(model_type)
        self.paths["draft_class"] = "architectures[0]"
        name = keys.text(architectures[0], "architectures[0]")
        return keys.DRAFT_CLASSES.get(name) or keys.DRAFT_CLASSES.get("Eagle3" + name) or name

    def _mla(self) -> MlaShape:
        names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        sizes = {name: keys.integer(self.layer.take(name) or 0, self.layer.path(name)) for name in names}
        query = self.layer.take("q_lora_rank")
        self.paths["mla"] = self.layer.path("kv_lora_rank")
        return MlaShape(q_lora_rank=query and keys.integer(query, self.layer.path("q_lora_rank")), **sizes)

    def _rope(self) -> rope.Rope:
        values = self.layer.values
        for key in ("rope_theta", rope.OLD, rope.NEW):
            self.layer.take(key)
        self.paths["rope"] = self.layer.path(rope.spelled_at(values))
        if not any(values.get(key) for key in ("rope_theta", rope.OLD, rope.NEW)):
            self.absent.append("rope")
        self.findings += rope.check_spellings(values, self.layer.prefix)
        self.findings += rope.check_members(values, self.layer.prefix)
        return rope.rope_of(values)

    def _aux(self) -> Tuple[Tuple[int, ...], int]:
        """Canonical ids, and the number of streams where there are none.

        Ids at the top level are canonical; a list under ``eagle_config`` alone is in SGLang's counting.
        """
        named = self.value("aux_layers", keys.layer_ids, (), (self.top, IDS), (self.layer, IDS))
        written = self.eagle.take(IDS)
        engine = keys.layer_ids(written, self.eagle.path(IDS)) if written else ()
        count = self.value(
            "unnamed_aux_count", keys.integer, 0, (self.layer, "num_aux_hidden_states"), (self.layer, "num_aux_layers")
        )
        architecture = self.target.architecture if self.target else ""
        layers = self.target.layers if self.target else None
        read = from_sglang(engine, architecture, layers)
        if not named and engine:
            named = read
            self.paths["aux_layers"] = self.eagle.path(IDS)
            self.absent = [name for name in self.absent if name != "aux_layers"]
            if architecture not in SGLANG_COUNTING:
                self.findings.append(_counting_unknown(self.paths["aux_layers"], engine, named, architecture))
        elif not named:
            self.absent = [*{*self.absent, "aux_layers"}]
            self.findings.append(_aux_layers_missing(self.paths["aux_layers"], layers))
        elif engine and architecture in SGLANG_COUNTING and read != named:
            self.findings.append(_engines_read_other_layers(self.eagle.path(IDS), engine, read, named))
        if named and count not in (0, len(named)):
            self.findings.append(_aux_count(self.paths["unnamed_aux_count"], count, named))
        return named, DEFAULT_AUX_COUNT if named or not count else count

    def _norm_before_residual(self) -> bool:
        value = self.of_top("norm_before_residual", keys.boolean, self.nested)
        if self.nested and "norm_before_residual" in self.absent:
            self.findings.append(
                warning(
                    "norm_before_residual_missing",
                    "norm_before_residual is absent: vLLM takes it for true in a nested config, for false in a flat one.",
                    path="norm_before_residual",
                    actual=None,
                    fix="Write norm_before_residual as the drafter was trained.",
                )
            )
        return bool(value)

    def _norm_before_fc(self) -> bool:
        """The value under ``eagle_config`` wins, as in both engines."""
        places = ((self.eagle, "norm_before_fc"), (self.top, "norm_before_fc"))
        inner, outer = (level.values.get(key) for level, key in places)
        if inner is not None and outer is not None and inner != outer:
            message = "norm_before_fc differs between the top level and eagle_config, which wins."
            path = self.eagle.path("norm_before_fc")
            self.findings.append(
                warning("norm_before_fc_contradiction", message, path=path, expected=outer, actual=inner)
            )
        return bool(self.value("norm_before_fc", keys.boolean, False, *(places if inner is not None else places[::-1])))

    def _windows(self, layers: int) -> Tuple[Optional[int], ...]:
        """By ``layer_types``; without them a window is in use only where ``use_sliding_window`` says so."""
        size = self.of_layer("windows", keys.integer, None, "sliding_window")
        kinds = self.layer.take("layer_types")
        in_use = self.layer.take("use_sliding_window")
        if kinds is None:
            kinds = ["sliding_attention"] * layers if in_use is True else []
        windows = tuple(size if kind == "sliding_attention" else None for kind in kinds)
        if any(windows):
            return windows
        self.layer.asked -= {"sliding_window", "layer_types", "use_sliding_window"}
        return ()

    def _tie(self) -> bool:
        outer, inner = self.top.values.get("tie_word_embeddings"), self.layer.values.get("tie_word_embeddings")
        places = ((self.top, "tie_word_embeddings"), (self.layer, "tie_word_embeddings"))
        ordered = places[::-1] if inner and not outer else places
        return bool(self.value("tie_word_embeddings", keys.boolean, False, *ordered))

    def _packaging(self) -> Tuple[Packaging, Dict[str, Any]]:
        """The rest of the file, and what of it nobody knows. Call it last: it takes what no field asked for."""
        top, layer = self.top, self.layer
        places = [(level, key) for level in (top, layer) for key in ("dtype", "torch_dtype")]
        dtype = self.value("dtype", keys.text, None, *places)
        carried = top if self.nested else Level(self._carried(), NESTED_IN_FLAT + ".")
        speculators = Level(keys.mapping(carried.take(SPECULATORS) or {}, SPECULATORS), carried.path(SPECULATORS) + ".")
        verifier = Level(keys.mapping(speculators.take("verifier") or {}, "verifier"), speculators.path("verifier."))
        methods = speculators.take("proposal_methods") or [{}]
        method = Level(keys.mapping(methods[0], "proposal_methods"), speculators.path("proposal_methods[0]."))
        packaging = Packaging(
            dtype=dtype,
            verifier=self.value("verifier", keys.text, None, (verifier, "name_or_path")),
            verifier_architectures=tuple(
                self.value("verifier_architectures", keys.anything, (), (verifier, "architectures"))
            ),
            speculative_tokens=self.value("speculative_tokens", keys.integer, None, (method, "speculative_tokens")),
            rope_parameters=bool(layer.values.get(rope.NEW)),
        )
        nested = _beyond(carried.rest(), keys.NESTED_DEFAULTS)
        proposal = _beyond(method.rest(), keys.PROPOSAL_DEFAULTS)
        remains = {
            **_beyond(speculators.rest(), keys.SPECULATORS_DEFAULTS),
            **({"verifier": verifier.rest()} if verifier.rest() else {}),
            **({"proposal_methods": [proposal, *methods[1:]]} if proposal or methods[1:] else {}),
        }
        if remains:
            nested[SPECULATORS] = remains
        in_layer = _beyond(layer.rest(), keys.LAYER_DEFAULTS)
        if self.nested and "transformers_version" in nested:
            in_layer["transformers_version"] = nested.pop("transformers_version")
        unknown = {
            level.path(key): value
            for level in (layer, self.eagle, *([top] if self.nested else []))
            for key, value in level.rest().items()
            if key not in keys.KNOWN
        }
        return (
            replace(packaging, layer_keys=in_layer, eagle_keys=self.eagle.rest(), nested_keys=nested),
            unknown,
        )

    def _carried(self) -> Mapping[str, Any]:
        return keys.mapping(self.top.take(NESTED_IN_FLAT) or {}, NESTED_IN_FLAT)

    def _check_layout(self) -> None:
        """A file of both layouts at once, or of another algorithm than EAGLE-3."""
        algorithm = self.top.values.get("speculators_model_type", "eagle3")
        if algorithm != "eagle3":
            message = f"This is a drafter of the algorithm {algorithm}, not of EAGLE-3."
            self.findings.append(
                error(
                    "speculators_algorithm_unsupported",
                    message,
                    path="speculators_model_type",
                    expected="eagle3",
                    actual=algorithm,
                )
            )
        if "model_type" in self.top.values and (self.nested or SPECULATORS in self.top.values):
            self.findings.append(
                error(
                    "layout_contradiction",
                    "The file has both model_type and a speculators config at the top level: vLLM takes the verifier "
                    "from one and parses the drafter by the other.",
                    path="model_type",
                    expected=None,
                    actual=self.top.values["model_type"],
                    fix="Remove model_type from a nested file, or the speculators keys from a flat one.",
                )
            )


def _beyond(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Dict[str, Any]:
    """Without what a writer puts there anyway."""
    return {key: value for key, value in values.items() if key not in defaults or value != defaults[key]}


def _aux_layers_missing(path: str, layers: Optional[int]) -> Finding:
    default = list(default_layers(layers)) if layers else None
    return warning(
        "aux_layers_missing",
        f"The config names no aux layers; engines take {default or 'the default of the target'}, which is right only "
        "if the drafter was trained on these.",
        path=path,
        expected=default,
        actual=None,
        fix=f"Write {IDS} at the top level as the drafter was trained.",
    )


def _counting_unknown(path: str, engine: Tuple[int, ...], named: Tuple[int, ...], architecture: str) -> Finding:
    target = f"targets of the class {architecture}" if architecture else "a target that is not given"
    return warning(
        "aux_layers_target_unknown",
        f"How SGLang counts {list(engine)} for {target} is not known; read as for most targets they are the streams "
        f"{list(named)}.",
        path=path,
        expected=list(named),
        actual=list(engine),
        fix="Name the target (--target), or write the ids at the top level too.",
    )


def _engines_read_other_layers(
    path: str, engine: Tuple[int, ...], read: Tuple[int, ...], named: Tuple[int, ...]
) -> Finding:
    return warning(
        "aux_layers_contradiction",
        f"vLLM reads the streams {list(named)}, SGLang {list(read)}: one of the two gets layers that the drafter was "
        "not trained on.",
        path=path,
        expected=list(named),
        actual=list(engine),
        fix="Convert the drafter again from the layout that is right.",
    )


def _aux_count(path: str, count: int, named: Tuple[int, ...]) -> Finding:
    return error(
        "aux_count_contradiction",
        f"The config names {len(named)} aux layers but says that there are {count}; engines build fc for {count}.",
        path=path,
        expected=len(named),
        actual=count,
        fix=f"Write {len(named)}, or name all layers.",
    )
