"""The weights of a large checkpoint in sum: 100 000 names become some thirty patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from eagle3_backend.drafter.tensorfile import Tensor

MAX_GROUPS = 256
"""Most patterns that are told, the largest first; the largest targets have a tenth of them."""


@dataclass(frozen=True)
class Group:
    """Tensors whose names differ in numbers alone, for which the ``pattern`` has asterisks.

    ``dtype`` and ``shape`` are those that all of them have, else None; ``bytes`` are those of all together.
    """

    pattern: str
    count: int
    bytes: int
    dtype: Optional[str]
    shape: Optional[Tuple[int, ...]]


@dataclass(frozen=True)
class Summary:
    """Number and bytes of all tensors, bytes by dtype, and the groups.

    ``numbers`` counts the different numbers behind a word of the names: {"layers": 61, "experts": 384}.
    """

    tensors: int
    bytes: int
    dtypes: Dict[str, int]
    numbers: Dict[str, int]
    groups: Tuple[Group, ...]

    def to_json(self) -> Dict[str, Any]:
        return {
            "tensors": self.tensors,
            "bytes": self.bytes,
            "dtypes": self.dtypes,
            "numbers": self.numbers,
            "groups": [[group.pattern, group.count, group.bytes, group.dtype, group.shape] for group in self.groups],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Summary:
        """Rebuild a summary from `to_json`."""
        groups = tuple(
            Group(pattern, count, size, dtype, None if shape is None else tuple(shape))
            for pattern, count, size, dtype, shape in data["groups"]
        )
        return cls(data["tensors"], data["bytes"], dict(data["dtypes"]), dict(data["numbers"]), groups)


def summarize(tensors: Mapping[str, Tensor]) -> Summary:
    """Sum up tensors by name."""
    members: Dict[str, List[Tensor]] = {}
    numbers: Dict[str, Set[str]] = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        for place, part in enumerate(parts):
            if part.isdigit():
                parts[place] = "*"
                numbers.setdefault(parts[place - 1] if place else "", set()).add(part)
        members.setdefault(".".join(parts), []).append(tensor)
    dtypes: Dict[str, int] = {}
    for tensor in tensors.values():
        dtypes[tensor.dtype] = dtypes.get(tensor.dtype, 0) + tensor.end - tensor.start
    groups = sorted((_group(pattern, found) for pattern, found in members.items()), key=lambda group: -group.bytes)
    return Summary(
        len(tensors),
        sum(dtypes.values()),
        dtypes,
        {word: len(seen) for word, seen in numbers.items()},
        tuple(groups[:MAX_GROUPS]),
    )


def _group(pattern: str, tensors: List[Tensor]) -> Group:
    dtypes, shapes = {tensor.dtype for tensor in tensors}, {tensor.shape for tensor in tensors}
    return Group(
        pattern,
        len(tensors),
        sum(tensor.end - tensor.start for tensor in tensors),
        dtypes.pop() if len(dtypes) == 1 else None,
        shapes.pop() if len(shapes) == 1 else None,
    )
