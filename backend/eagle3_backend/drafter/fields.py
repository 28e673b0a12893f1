"""A drafter's config on its way into the canonical form: values by field, and what was seen on the way."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.drafter.keys import EAGLE, LAYER, InvalidValue, Level, mapping
from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding

Kind = Callable[[Any, str], Any]
"""Turns a value of the file into one of the field, or raises `InvalidValue` with the path that it is given."""


class Fields:
    """One pass over one config: which key gave which field, which fields took a default, and findings.

    ``top`` is the file's top level, ``layer`` the one with the layer's sizes (the same in the flat layout), ``eagle``
    that of ``eagle_config``.
    """

    def __init__(self, config: Mapping[str, Any], nested: bool, target: Optional[Target]) -> None:
        self.nested = nested
        self.target = target
        self.top = self.layer = Level(config, "")
        if nested:
            self.layer = Level(mapping(self.top.take(LAYER), LAYER), LAYER + ".")
        eagle = self.layer.path(EAGLE)
        self.eagle = Level(mapping(self.layer.take(EAGLE) or {}, eagle), eagle + ".")
        self.paths: Dict[str, str] = {}
        self.absent: List[str] = []
        self.findings: List[Finding] = []

    def value(self, name: str, kind: Kind, default: Any, *places: Tuple[Level, str]) -> Any:
        """The first of ``places`` that holds a value; all of them count as read. Default `...`: it must be there."""
        self.paths[name] = places[0][0].path(places[0][1])
        found = [(level.path(key), level.take(key)) for level, key in places]
        for path, taken in found:
            if taken is not None:
                self.paths[name] = path
                return kind(taken, path)
        if default is ...:
            raise InvalidValue(self.paths[name], "is missing")
        self.absent.append(name)
        return default

    def of_layer(self, name: str, kind: Kind, default: Any, key: str = "") -> Any:
        return self.value(name, kind, default, (self.layer, key or name))

    def of_top(self, name: str, kind: Kind, default: Any) -> Any:
        return self.value(name, kind, default, (self.top, name))

    def tell(self, make: Callable[..., Finding], code: str, message: str, **rest: Any) -> None:
        """Add a finding; ``make`` is `findings.error`, `warning` or `info`."""
        self.findings.append(make(code, message, **rest))
