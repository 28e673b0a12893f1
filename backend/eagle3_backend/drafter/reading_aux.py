"""The aux layers of a drafter's config, in canonical ids whatever counting the file uses."""

from __future__ import annotations

from typing import Tuple

from eagle3_backend.drafter import keys
from eagle3_backend.drafter.aux_layers import IDS, SGLANG_COUNTING, default_layers, from_sglang
from eagle3_backend.drafter.config import DEFAULT_AUX_COUNT
from eagle3_backend.drafter.fields import Fields
from eagle3_backend.findings import error, warning

Ids = Tuple[int, ...]


def read_aux_layers(fields: Fields) -> Tuple[Ids, int, Ids]:
    """Canonical ids, the number of streams where there are none, and the list for SGLang as it is written.

    Ids at the top level are canonical; a list under ``eagle_config`` alone is in SGLang's counting for the target.
    """
    named: Ids = fields.value("aux_layers", keys.layer_ids, (), (fields.top, IDS), (fields.layer, IDS))
    path = fields.eagle.path(IDS)
    written = keys.layer_ids(fields.eagle.take(IDS) or [], path)
    architecture = fields.target.architecture if fields.target else ""
    read = from_sglang(written, architecture, fields.target.layers if fields.target else None)
    known = architecture in SGLANG_COUNTING
    if named and written and known and read != named:
        _tell_contradiction(fields, path, written, read, named)
    if not named and written:
        named = read
        fields.paths["aux_layers"] = path
        if not known:
            _tell_unknown_target(fields, path, written, read, architecture)
    fields.absent = [name for name in fields.absent if name != "aux_layers"]
    if not named:
        fields.absent.append("aux_layers")
        _tell_missing(fields)
    return named, _count(fields, len(named)), written


def _count(fields: Fields, named: int) -> int:
    places = ((fields.layer, "num_aux_hidden_states"), (fields.layer, "num_aux_layers"))
    count = int(fields.value("unnamed_aux_count", keys.integer, named or DEFAULT_AUX_COUNT, *places))
    if not named:
        return count
    if count != named:
        fields.tell(
            error,
            "aux_count_contradiction",
            f"The config names {named} aux layers but says that there are {count}; engines build fc for {count}.",
            path=fields.paths["unnamed_aux_count"],
            expected=named,
            actual=count,
            fix=f"Write {named}, or name all layers.",
        )
    return DEFAULT_AUX_COUNT


def _tell_missing(fields: Fields) -> None:
    layers = fields.target.layers if fields.target else None
    default = list(default_layers(layers)) if layers else None
    fields.tell(
        warning,
        "aux_layers_missing",
        f"The config names no aux layers; engines take {default or 'the default of the target'}, which is right only "
        "if the drafter was trained on these.",
        path=fields.paths["aux_layers"],
        expected=default,
        actual=None,
        fix=f"Write {IDS} at the top level as the drafter was trained.",
    )


def _tell_unknown_target(fields: Fields, path: str, written: Ids, read: Ids, architecture: str) -> None:
    target = f"targets of the class {architecture}" if architecture else "a target that is not given"
    fields.tell(
        warning,
        "aux_layers_target_unknown",
        f"How SGLang counts {list(written)} for {target} is not known; read as for most targets they are the streams "
        f"{list(read)}.",
        path=path,
        expected=list(read),
        actual=list(written),
        fix="Name the target (--target), or write the ids at the top level too.",
    )


def _tell_contradiction(fields: Fields, path: str, written: Ids, read: Ids, named: Ids) -> None:
    fields.tell(
        warning,
        "aux_layers_contradiction",
        f"vLLM reads the streams {list(named)}, SGLang {list(read)}: one of the two gets layers that the drafter was "
        "not trained on.",
        path=path,
        expected=list(named),
        actual=list(written),
        fix="Convert the drafter again from the layout that is right.",
    )
