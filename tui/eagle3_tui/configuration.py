"""The operator's own settings of the panel: `config.toml` in the configuration folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle3_backend.findings import FindingError, error

FILE = "config.toml"


@dataclass(frozen=True)
class Configuration:
    """``keys`` moves keys by the ids of the key table: {"stop": ["f8"]}; ``bell`` lets the terminal ring."""

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bell: bool = True


def read(folder: Path) -> Configuration:
    """What is written there; nothing is the defaults. Raises FindingError `configuration_invalid`."""
    path = folder / FILE
    if not path.exists():
        return Configuration()
    # Most have no such file, and its reader is not free.
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise _invalid(path, f"it cannot be read: {problem}") from problem
    unknown = set(data) - {"keys", "bell"}
    if unknown:
        raise _invalid(path, f"it has no setting '{min(unknown)}'", sorted(("keys", "bell")), min(unknown))
    keys, bell = data.get("keys", {}), data.get("bell", True)
    if not isinstance(bell, bool):
        raise _invalid(path, "bell is true or false", "true or false", bell)
    if not isinstance(keys, dict):
        raise _invalid(path, "keys is a table of ids", '[keys]\nstop = "f8"', keys)
    return Configuration({str(name): _names(path, str(name), value) for name, value in keys.items()}, bell)


def _names(path: Path, name: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(one, str) and one for one in names):
        raise _invalid(path, f"keys.{name} is a key or a list of keys", '"f8" or ["f8", "X"]', value)
    return tuple(names)


def _invalid(path: Path, words: str, expected: Any = None, actual: Any = None) -> FindingError:
    message = f"{path.name} is faulty: {words}."
    return FindingError(error("configuration_invalid", message, path=str(path), expected=expected, actual=actual))
