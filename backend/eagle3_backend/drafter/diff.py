"""Two drafter configs side by side, aligned by what their keys mean, whatever layout or spelling they are written in.

Equal in effect means that no row is `breaking` or `unknown`: either file makes an engine compute the same drafter. A
`harmless` row is a difference that no engine looks at; a key that nobody here knows is never called harmless.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from eagle3_backend.drafter.diff_fields import FIELDS, View
from eagle3_backend.drafter.diff_rows import Kind, Row, Side, equal_kind, plain_row, same
from eagle3_backend.drafter.diff_special import SPECIAL, architecture_row, aux_rows, model_type_row, rope_rows
from eagle3_backend.drafter.keys import LAYER, NESTED_IN_FLAT
from eagle3_backend.drafter.reading import layout_of
from eagle3_backend.drafter.target import Target

__all__ = ["Kind", "Row", "Side", "compare", "equal_in_effect", "summary"]

GROUPS = (
    "Kind", "Shape", "Vocabulary", "Aux layers", "Norms", "Rope", "Positions", "Attention", "MLP", "Weights", "Tensors",
    "Launch", "Tokens", "Training", "Other keys", "Origin",
)  # fmt: skip
"""The order of rows."""

Leaves = List[Tuple[str, Any]]
"""Values and their dotted paths."""
PLACES = frozenset(path for field in (*FIELDS, *SPECIAL) for path in (*field.flat, *field.nested))
"""Every place that some row knows how to read."""


def compare(left: Mapping[str, Any], right: Mapping[str, Any], target: Optional[Mapping[str, Any]] = None) -> List[Row]:
    """Every key that either config.json has, and what its difference does. Never raises for what a file says.

    ``target`` is the target's config.json; without it an absent list of aux layers cannot be compared with one that
    spells the default.
    """
    views = View(left, layout_of(left) == "nested"), View(right, layout_of(right) == "nested")
    rows = list(_known_rows(views, target))
    shown = tuple({path for row in rows for path in side(row).paths} for side in (_left, _right))
    rows += _other_rows(views, shown)
    return sorted(rows, key=lambda row: GROUPS.index(row.group))


def equal_in_effect(rows: Iterable[Row]) -> bool:
    return not any(row.kind in (Kind.BREAKING, Kind.UNKNOWN) for row in rows)


def summary(rows: Sequence[Row]) -> Dict[str, Any]:
    """The rows by kind: differences of value with both values as written (null is absent), the others by path.

    ``ignored`` are differences of bookkeeping: versions and the like, which say who wrote a file and nothing else.
    """
    told = [row for row in rows if not row.bookkeeping]
    return {
        "equal_in_effect": equal_in_effect(rows),
        "effective_differences": {row.path: [row.left.written, row.right.written] for row in told if row.kind.differs},
        "spelling_differences": [row.path for row in told if row.kind is Kind.SPELLING],
        "default_equal": [row.path for row in told if row.kind is Kind.DEFAULT],
        "ignored": [row.path for row in rows if row.bookkeeping and row.kind is not Kind.SAME],
    }


def _left(row: Row) -> Side:
    return row.left


def _right(row: Row) -> Side:
    return row.right


def _known_rows(views: Tuple[View, View], target: Optional[Mapping[str, Any]]) -> Iterator[Row]:
    for row in (architecture_row(views), model_type_row(views)):
        if row is not None:
            yield row
    yield from rope_rows(views)
    yield from aux_rows(views, Target.of(target) if target is not None else None)
    for field in FIELDS:
        row = plain_row(field, views)
        if row is not None:
            yield row


def _other_rows(views: Tuple[View, View], shown: Sequence[Set[str]]) -> Iterator[Row]:
    """What is left over: keys that nobody here knows, and places that contradict the one that counts."""
    places: Dict[str, Tuple[Leaves, Leaves]] = {}
    for index, view in enumerate(views):
        for path, value in sorted(_leaves(view.config), key=_rank):
            if any(path == one or path.startswith(f"{one}.") for one in shown[index]):
                continue
            # The same key may stand at the top of one layout, and inside the layer or aside in the other.
            places.setdefault(_bare(path), ([], []))[index].append((path, value))
    for name, pair in places.items():
        left, right = _side(pair[0]), _side(pair[1])
        path = name if left.paths and right.paths and left.paths != right.paths else (left.paths or right.paths)[0]
        present = bool(left.paths) and bool(right.paths)
        equal = same(left.value, right.value) and present
        kind = equal_kind(left, right) if equal else Kind.UNKNOWN
        known = any(one in PLACES for one in (*left.paths, *right.paths))
        note = "contradicts the place that counts" if known else "no reader known here has it"
        yield Row(name, "Other keys", kind, left, right, path, note="" if equal else note)


def _side(leaves: Leaves) -> Side:
    """What these places say; values that contradict each other stand in a list."""
    values: List[Any] = []
    for _, value in leaves:
        if not any(same(value, one) for one in values):
            values.append(value)
    said = values if len(values) > 1 else values[0] if values else None
    return Side(said, said, tuple(path for path, _ in leaves))


def _rank(leaf: Tuple[str, Any]) -> int:
    """The layer's own place comes first: inside the layer of a nested file, at the top of a flat one."""
    path, _ = leaf
    return 0 if path.startswith(f"{LAYER}.") else 2 if path.startswith(f"{NESTED_IN_FLAT}.") else 1


def _bare(path: str) -> str:
    for prefix in (f"{LAYER}.", f"{NESTED_IN_FLAT}."):
        if path.startswith(prefix):
            return path[len(prefix) :]
    return path


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, Any]]:
    """Every value by its dotted path; an empty object is a value."""
    for name, value in config.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value
