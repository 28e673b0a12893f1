"""The weights of two drafters side by side: names, dtypes and shapes from headers, and the vocabulary map's ids."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from eagle3_backend.drafter.diff_fields import BOTH, SHAPE
from eagle3_backend.drafter.diff_rows import Effect, Kind, Row, Side
from eagle3_backend.drafter.inventory import INTEGERS, Inventory
from eagle3_backend.drafter.layouts import flat_tensor_name
from eagle3_backend.drafter.tensorfile import Tensor
from eagle3_backend.findings import FindingError

GROUP = "Tensors"
MAP = "d2t"
FLOATS = ("bfloat16", "float16", "float32", "float64")

_ALONE = {
    "t2d": ((), "neither engine reads it; trainers and converters do"),
    "embed_tokens.weight": (("vllm",), "SGLang takes the target's where the widths agree"),
}
"""Tensors that a drafter may do without: the engines on which having one matters, and why it does not elsewhere."""


def compare_weights(left: Optional[Inventory], right: Optional[Inventory]) -> List[Row]:
    """A row for each tensor of either file, aligned across the names of both layouts; none where a side has no weights.

    Their values are not compared, but for the vocabulary map.
    """
    if left is None or right is None or not (left.tensors and right.tensors):
        return []
    sides = [{flat_tensor_name(name): (name, tensor) for name, tensor in one.tensors.items()} for one in (left, right)]
    rows = []
    for flat in dict.fromkeys([*sides[0], *sides[1]]):
        pair = [_side(side, flat) for side in sides]
        if pair[0].paths and pair[1].paths:
            rows.append(_both(flat, pair[0], pair[1], sides[0][flat][1], sides[1][flat][1]))
        else:
            rows.append(_alone(flat, pair[0], pair[1]))
    return [_with_ids(row, left, right) if row.field == MAP else row for row in rows]


def _side(tensors: Dict[str, Tuple[str, Tensor]], flat: str) -> Side:
    if flat not in tensors:
        return Side()
    name, tensor = tensors[flat]
    told = f"{tensor.dtype} {list(tensor.shape)}"
    return Side(told, told, (name,))


def _both(flat: str, left: Side, right: Side, one: Tensor, other: Tensor) -> Row:
    path = left.paths[0] if left.paths == right.paths else flat
    if one.shape != other.shape:
        return Row(flat, GROUP, Kind.BREAKING, left, right, path, tuple(_on(SHAPE, BOTH)))
    if one.dtype == other.dtype:
        return Row(flat, GROUP, Kind.SAME if left.paths == right.paths else Kind.SPELLING, left, right, path)
    if any(one.dtype in kind and other.dtype in kind for kind in (FLOATS, INTEGERS)):
        return Row(flat, GROUP, Kind.HARMLESS, left, right, path, note="engines cast it when they load it")
    return Row(flat, GROUP, Kind.BREAKING, left, right, path, tuple(_on("how weights are read", BOTH)))


def _alone(flat: str, left: Side, right: Side) -> Row:
    engines, note = _ALONE.get(flat, (BOTH, ""))
    effects = tuple(_on("what is computed", engines))
    kind = Kind.BREAKING if effects else Kind.HARMLESS
    return Row(flat, GROUP, kind, left, right, (left.paths or right.paths)[0], effects, note)


def _on(what: str, engines: Tuple[str, ...]) -> Iterator[Effect]:
    return (Effect(what, engine) for engine in engines)


def _with_ids(row: Row, left: Inventory, right: Inventory) -> Row:
    """The row of the vocabulary map, whose ids matter as much as its shape."""
    if row.kind.differs:
        return row
    try:
        ids = [one.integers(side.paths[0]) for one, side in ((left, row.left), (right, row.right))]
    except FindingError:
        ids = [None]
    if None in ids:
        return Row(row.field, GROUP, row.kind, row.left, row.right, row.path, note="its ids were not compared")
    if ids[0] == ids[1]:
        return row
    effects = tuple(_on("which tokens are drafted", BOTH))
    return Row(row.field, GROUP, Kind.BREAKING, row.left, row.right, row.path, effects, "the ids differ")
