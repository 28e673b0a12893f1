"""The options of engines as this laptop knows them: asked once for each installed version, and kept."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle3_backend.engines.options import Surface

PACKAGED = Path(__file__).parent / "surfaces"
"""The options of the releases that this product was written for, without their texts."""

_SUFFIX = ".json"


def packaged(engine: str) -> Surface:
    """What is known of an engine that cannot be asked."""
    return Surface.from_json(json.loads((PACKAGED / (engine + _SUFFIX)).read_text(encoding="utf-8")), packaged=True)


class SurfaceCache:
    """Surfaces by `surface_key`, one file each, below the laptop's cache folder. Damaged files count as absent."""

    def __init__(self, cache_dir: Path) -> None:
        self._folder = cache_dir / "engines"

    def keys(self, engine: str) -> list[str]:
        """The keys of every surface of this engine that is there and whole."""
        if not self._folder.is_dir():
            return []
        names = sorted(path.stem for path in self._folder.glob(f"{engine}-*{_SUFFIX}"))
        return [name for name in names if self.get(name) is not None]

    def get(self, key: str) -> Surface | None:
        """None where it is absent or damaged."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return Surface.from_json(json.loads(self._path(key).read_text(encoding="utf-8")))
        return None

    def put(self, key: str, data: Mapping[str, Any]) -> Surface:
        """Keep what a host told, if it has a key. One without flags is not kept: the next try may tell more."""
        surface = Surface.from_json(data)
        if key and surface.flags:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = self._path(key).with_suffix(".tmp")
            temporary.write_text(json.dumps(data), encoding="utf-8")
            os.replace(temporary, self._path(key))
        return surface

    def _path(self, key: str) -> Path:
        return self._folder / (key + _SUFFIX)
