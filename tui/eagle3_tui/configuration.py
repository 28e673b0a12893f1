"""The operator's own settings of the panel: `config.toml` in the configuration folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle3_backend.control.alerts import Notices, Quiet
from eagle3_backend.findings import FindingError, error

FILE = "config.toml"
KNOWN = ("bell", "desktop", "keys", "quiet", "webhook")


@dataclass(frozen=True)
class Configuration:
    """``keys`` moves keys by the ids of the key table: {"stop": ["f8"]}.

    ``bell`` lets the terminal ring, ``desktop`` lets it show a note on the desktop, ``notices`` is how else a person is
    called, and when not.
    """

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bell: bool = True
    desktop: bool = True
    notices: Notices = field(default_factory=Notices)


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
    if unknown := set(data) - set(KNOWN):
        raise _invalid(path, f"it has no setting '{min(unknown)}'", KNOWN, min(unknown))
    keys = data.get("keys", {})
    if not isinstance(keys, dict):
        raise _invalid(path, "keys is a table of ids", '[keys]\nstop = "f8"', keys)
    return Configuration(
        {str(name): _names(path, str(name), value) for name, value in keys.items()},
        _switch(path, "bell", data),
        _switch(path, "desktop", data),
        Notices(_webhook(path, data.get("webhook", "")), _quiet(path, data.get("quiet", ""))),
    )


def _switch(path: Path, name: str, data: dict[str, Any]) -> bool:
    value = data.get(name, True)
    if not isinstance(value, bool):
        raise _invalid(path, f"{name} is true or false", "true or false", value)
    return value


def _webhook(path: Path, value: Any) -> str:
    """The address as it is. It may hold a token: no finding repeats it."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value if isinstance(value, str) else "-")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and value.isprintable() and " " not in value
        usable = usable and parts.port != 0
    except ValueError:
        usable = False
    if value != "" and not usable:
        raise _invalid(path, "webhook is the address of a POST", "https://host/path")
    return str(value)


def _quiet(path: Path, value: Any) -> Quiet | None:
    """ "22:00-07:00" as minutes of the day."""
    if value == "":
        return None
    found = re.fullmatch(r"(\d\d):([0-5]\d)-(\d\d):([0-5]\d)", value) if isinstance(value, str) else None
    hours = [int(one) for one in found.groups()] if found else [24]
    if max(hours[::2]) > 23:
        raise _invalid(path, "quiet is a stretch of the day", "22:00-07:00", value)
    return Quiet(60 * hours[0] + hours[1], 60 * hours[2] + hours[3])


def _names(path: Path, name: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(one, str) and one for one in names):
        raise _invalid(path, f"keys.{name} is a key or a list of keys", '"f8" or ["f8", "X"]', value)
    return tuple(names)


def _invalid(path: Path, words: str, expected: Any = None, actual: Any = None) -> FindingError:
    message = f"{path.name} is faulty: {words}."
    return FindingError(error("configuration_invalid", message, path=str(path), expected=expected, actual=actual))
