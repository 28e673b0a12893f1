"""Rows of the fields that take more than one key to understand: the class, the rotary embedding and the aux layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterator, List, Mapping, Optional, Tuple

from eagle3_backend.drafter.aux_layers import IDS, NESTED_IDS, default_layers, from_sglang
from eagle3_backend.drafter.capabilities import CURRENT, NESTED_ARCHITECTURES, Version, class_of
from eagle3_backend.drafter.diff_fields import BOTH, MISSING, VLLM, Field, View
from eagle3_backend.drafter.diff_rows import Effect, Kind, Row, Side, equal_kind, same, shared_path, side_of
from eagle3_backend.drafter.keys import LAYER
from eagle3_backend.drafter.rope import NEW, OLD, Rope, rope_of, same_rotation
from eagle3_backend.drafter.target import Target

Views = Tuple[View, View]

ARCHITECTURES = Field("architectures", "Kind", ("architectures",), ("architectures",))
MODEL_TYPE = Field("model_type", "Kind", ("model_type",), (f"{LAYER}.model_type", "model_type"))
THETA = Field(
    "rope_theta",
    "Rope",
    ("rope_theta", f"{NEW}.rope_theta"),
    (f"{LAYER}.rope_theta", f"{LAYER}.{NEW}.rope_theta"),
)
SCALING = Field("rope_scaling", "Rope", (OLD, NEW), (f"{LAYER}.{OLD}", f"{LAYER}.{NEW}"))
VLLM_IDS = Field(IDS, "Aux layers", (IDS,), (IDS, f"{LAYER}.{IDS}"))
SGLANG_IDS = Field(NESTED_IDS, "Aux layers", (NESTED_IDS,), (IDS, f"{LAYER}.{IDS}"))
SPECIAL = (ARCHITECTURES, MODEL_TYPE, THETA, SCALING, VLLM_IDS, SGLANG_IDS)


def architecture_row(views: Views) -> Optional[Row]:
    """Which class each engine loads the file into: names differ more often than classes do."""
    left, right = (side_of(ARCHITECTURES, view) for view in views)
    if not (left.paths or right.paths):
        return None
    path = shared_path(ARCHITECTURES, views, left, right)
    # SGLang has no reader for the nested layout, whatever the name says: that is the layout's difference.
    asked = BOTH if views[0].nested == views[1].nested else VLLM
    loaded = {engine: [_loaded(engine, *pair) for pair in zip(views, (left, right))] for engine in asked}
    effects = tuple(Effect("the class that is loaded", name) for name, pair in loaded.items() if pair[0] != pair[1])
    if effects:
        return Row("architectures", "Kind", Kind.BREAKING, left, right, path, effects)
    if same(left.written, right.written):
        return Row("architectures", "Kind", equal_kind(left, right), left, right, path)
    if not any(loaded[name][0] for name in asked):
        note = "neither engine knows either name"
        return Row("architectures", "Kind", Kind.UNKNOWN, left, right, path, note=note)
    note = "" if len(asked) == len(BOTH) else "SGLang reads the flat layout only"
    return Row("architectures", "Kind", Kind.SPELLING, left, right, path, note=note)


def _loaded(engine: str, view: View, side: Side) -> Optional[str]:
    """The title of the class that an engine loads, None where it loads none."""
    name = str(side.written[0]) if isinstance(side.written, list) and side.written else ""
    if view.nested:
        if engine == "sglang":
            return None
        kind = str(view.at("speculators_model_type")), str(view.get("model_type"))
        name = NESTED_ARCHITECTURES.get(kind, "")
    found = class_of(engine, Version(CURRENT[engine]), name) if name else None
    return found.title if found is not None else None


def model_type_row(views: Views) -> Optional[Row]:
    """transformers' own name of the config class: a flat file without it is not read at all.

    It names the engine's class in the nested layout only, where it is part of the row of the architecture.
    """
    left, right = (side_of(MODEL_TYPE, view) for view in views)
    if not (left.paths or right.paths):
        return None
    path = shared_path(MODEL_TYPE, views, left, right)
    if same(left.value, right.value):
        return Row("model_type", "Kind", equal_kind(left, right), left, right, path)
    if left.blank or right.blank:
        effects = tuple(Effect("reading the file", engine) for engine in BOTH)
        return Row("model_type", "Kind", Kind.BREAKING, left, right, path, effects)
    note = "the class is named by architectures; this decides defaults of absent keys"
    return Row("model_type", "Kind", Kind.HARMLESS, left, right, path, note=note)


def rope_rows(views: Views) -> Iterator[Row]:
    """Base and scaling, each in whichever spelling a file uses."""
    ropes = [_rope(view) for view in views]
    if any(rope is None for rope in ropes):
        return
    for row in (_rope_row(THETA, views, ropes), _rope_row(SCALING, views, ropes)):
        if row is not None:
            yield row


def _layer_of(view: View) -> Mapping[str, Any]:
    layer = view.config.get(LAYER) if view.nested else view.config
    return layer if isinstance(layer, Mapping) else {}


def _rope(view: View) -> Optional[Rope]:
    """The rotary embedding, or None where the keys hold nonsense and can only be compared as they are written."""
    try:
        return rope_of(_layer_of(view))
    except (TypeError, ValueError, AttributeError):
        return None


def _rope_row(field: Field, views: Views, ropes: List[Any]) -> Optional[Row]:
    left, right = (_rope_side(field, view, rope) for view, rope in zip(views, ropes))
    if not (left.paths or right.paths):
        return None
    path = shared_path(field, views, left, right)
    equal = same(left.value, right.value)
    if not equal and field is SCALING and ropes[0].theta == ropes[1].theta:
        # Members that repeat a kind's default change no frequency.
        head = views[0].get("head_dim")
        equal = same_rotation(ropes[0], ropes[1], head if isinstance(head, int) else 128)
    if equal:
        return Row(field.name, field.group, equal_kind(left, right), left, right, path)
    effects = tuple(Effect("the rotary embedding", engine) for engine in BOTH)
    return Row(field.name, field.group, Kind.BREAKING, left, right, path, effects)


def _rope_side(field: Field, view: View, rope: Rope) -> Side:
    value = rope.theta if field is THETA else rope.scaling
    written: List[Any] = []
    paths: List[str] = []
    for path in field.places(view):
        found = view.at(path)
        if found is MISSING or not _agrees(field, path, found, value):
            continue
        if isinstance(found, Mapping):
            found = {name: one for name, one in found.items() if name != "rope_theta"}
        paths.append(path)
        written.append(found)
    return Side(value, written[0] if written else None, tuple(paths))


def _agrees(field: Field, path: str, found: Any, value: Any) -> bool:
    """Whether this place says what is in effect; one that does not is shown as a key of its own."""
    if field is THETA:
        return found is not None and same(found, value)
    try:
        return same(rope_of({path.rpartition(".")[2]: found}).scaling, value)
    except (TypeError, ValueError, AttributeError):
        return False


STREAMS = "the layers that are read"


def aux_rows(views: Views, target: Optional[Target]) -> Iterator[Row]:
    """The lists of aux layers: a row for what vLLM reads, and one for SGLang, whose list and counting are its own.

    A nested file names its layers once; in the second row they stand for what a conversion would tell SGLang.
    """
    left, right = (_AuxLayers(view, target) for view in views)
    if left.named or right.named:
        yield _aux_row(VLLM_IDS, views, left.for_vllm, right.for_vllm, {"vllm": (left.vllm, right.vllm)})
    if left.own_list or right.own_list:
        read = {"sglang": (left.sglang, right.sglang)}
        if not (left.named or right.named):
            # Then vLLM's first model runner (without Triton) takes this list as it stands.
            read["vllm on CPU"] = (left.own_list or left.vllm, right.own_list or right.vllm)
        yield _aux_row(SGLANG_IDS, views, left.for_sglang, right.for_sglang, read)


class _AuxLayers:
    """What one file says of its aux layers; ids are None where an engine takes a default that nobody knows."""

    def __init__(self, view: View, target: Optional[Target]) -> None:
        default = list(default_layers(target.layers)) if target is not None and target.layers else None
        architecture, layers = (target.architecture, target.layers) if target is not None else ("", None)
        top, self.for_vllm = _ids(view, VLLM_IDS)
        self.named = bool(self.for_vllm.paths)
        self.vllm = top or default
        self.own_list: Optional[List[int]] = None
        self.sglang, self.for_sglang = self.vllm, self.for_vllm
        if not view.nested:
            self.own_list, self.for_sglang = _ids(view, SGLANG_IDS)
            self.sglang = list(from_sglang(self.own_list, architecture, layers)) if self.own_list else default
        self.for_vllm = replace(self.for_vllm, value=self.vllm)
        self.for_sglang = replace(self.for_sglang, value=self.sglang)


def _ids(view: View, field: Field) -> Tuple[Optional[List[int]], Side]:
    """The list at a field's first place, and the side that shows it; null names no layers."""
    for path in field.places(view):
        found = view.at(path)
        if found is None or (isinstance(found, list) and all(type(one) is int for one in found)):
            return found or None, Side(None, found, (path,))
    return None, Side()


def _aux_row(field: Field, views: Views, left: Side, right: Side, read: Mapping[str, Tuple[Any, Any]]) -> Row:
    """``read`` holds what each engine takes from either file."""
    path = shared_path(field, views, left, right)
    unlike = {engine: pair for engine, pair in read.items() if pair[0] != pair[1]}
    effects = tuple(Effect(STREAMS, engine) for engine, pair in unlike.items() if None not in pair)
    if effects:
        return Row(field.name, field.group, Kind.BREAKING, left, right, path, effects)
    if unlike:
        note = "one side takes the target's default: name the target to compare"
        return Row(field.name, field.group, Kind.UNKNOWN, left, right, path, note=note)
    return Row(field.name, field.group, equal_kind(left, right), left, right, path)
