"""The rows of a comparison: how two sides relate, and the few fields whose meaning needs more than one key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.drafter.diff_fields import MISSING, Field, View


class Kind(str, Enum):
    """How the two sides of a row relate.

    ``spelling`` is the same value under another name or in another place, ``default`` an absent or null value against
    the default itself; ``unknown`` differs in a key that no reader known here has.
    """

    SAME = "same"
    SPELLING = "spelling"
    DEFAULT = "default"
    HARMLESS = "harmless"
    UNKNOWN = "unknown"
    BREAKING = "breaking"

    @property
    def differs(self) -> bool:
        return self in (Kind.HARMLESS, Kind.UNKNOWN, Kind.BREAKING)


@dataclass(frozen=True)
class Side:
    """One file's part of a row: the value as readers understand it, as written, and every place that says so.

    ``paths`` is empty where the file says nothing; ``value`` is then the default.
    """

    value: Any = None
    written: Any = None
    paths: Tuple[str, ...] = ()

    @property
    def blank(self) -> bool:
        """True where nothing, or null, is written."""
        return not self.paths or self.written is None

    @property
    def words(self) -> str:
        """What is written, and what it is taken for where that is something else: "absent = 128"."""
        taken = json.dumps(self.value, ensure_ascii=False)
        if not self.paths:
            return "absent" if self.value is None else f"absent = {taken}"
        written = json.dumps(self.written, ensure_ascii=False)
        return written if self.value is None or same(self.value, self.written) else f"{written} as {taken}"

    def to_json(self) -> Dict[str, Any]:
        return {"value": self.value, "written": self.written, "paths": list(self.paths)}


@dataclass(frozen=True)
class Effect:
    """What a difference breaks, and on which engine."""

    what: str
    engine: str


@dataclass(frozen=True)
class Row:
    """One field of both files.

    ``path`` names it as the files do: the place that they share, else the one of the older spelling. ``note`` says why
    a difference does no harm, or what else is worth knowing.
    """

    field: str
    group: str
    kind: Kind
    left: Side
    right: Side
    path: str
    effects: Tuple[Effect, ...] = ()
    note: str = ""
    bookkeeping: bool = False

    @property
    def words(self) -> str:
        """Why the row matters: "breaks tensor shapes on vllm, sglang; ..."."""
        engines: Dict[str, List[str]] = {}
        for effect in self.effects:
            engines.setdefault(effect.what, []).append(effect.engine)
        told = [f"breaks {what} on {', '.join(names)}" for what, names in engines.items()]
        return "; ".join([*told, self.note] if self.note else told)

    def to_json(self) -> Dict[str, Any]:
        return {
            "field": self.field,
            "path": self.path,
            "group": self.group,
            "kind": self.kind.value,
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "effects": [{"breaks": effect.what, "engine": effect.engine} for effect in self.effects],
            "note": self.note,
        }


def same(left: Any, right: Any) -> bool:
    """Equality of JSON values: numbers by value, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right))
    return bool(left == right)


def equal_kind(left: Side, right: Side) -> Kind:
    """The kind of a row whose sides mean the same."""
    if left.blank != right.blank or bool(left.paths) != bool(right.paths):
        return Kind.DEFAULT
    return Kind.SAME if left.paths == right.paths and same(left.written, right.written) else Kind.SPELLING


def shared_path(field: Field, views: Tuple[View, View], left: Side, right: Side) -> str:
    """The name of a row as the files write it; the flat layout's where they have nothing in common."""
    for path in left.paths:
        if path in right.paths:
            return path
    if views[0].nested != views[1].nested:
        return field.name
    written = left.paths or right.paths
    return written[0] if written and not (left.paths and right.paths) else field.places(views[0])[0]


def plain_row(field: Field, views: Tuple[View, View]) -> Optional[Row]:
    """The row of a field whose value stands under one key, or None where neither file has anything to say of it."""
    left, right = (side_of(field, view) for view in views)
    equal = same(left.value, right.value)
    if not (left.paths or right.paths) and (equal or not field.by_layout):
        return None
    path = shared_path(field, views, left, right)
    if equal:
        return Row(field.name, field.group, equal_kind(left, right), left, right, path, bookkeeping=field.bookkeeping)
    flat = [not view.nested for view in views]
    if field.launch and any(flat):
        note = "the flat layout has no place for it; it is said at launch"
        return Row(field.name, field.group, Kind.HARMLESS, left, right, path, note=note, bookkeeping=all(flat))
    effects = tuple(Effect(field.what, engine) for engine in field.engines)
    kind = Kind.BREAKING if effects else Kind.HARMLESS
    return Row(field.name, field.group, kind, left, right, path, effects, field.note, field.bookkeeping)


def side_of(field: Field, view: View) -> Side:
    """What ``view`` says of a field: the first place with a value counts, and those that agree with it."""
    found = [(path, view.at(path)) for path in field.places(view)]
    found = [(path, value) for path, value in found if value is not MISSING]
    written = next((value for _, value in found if value is not None), None)
    value = field.default(view) if written is None else field.read(view, written)
    return Side(value, written, tuple(path for path, one in found if one is None or same(one, written)))
