"""Where the faces find things on the laptop: profiles by name, and the folders of settings, state and cache."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from eagle3_backend import shipped
from eagle3_backend.findings import FindingError, error

if TYPE_CHECKING:
    from eagle3_backend.control import Control
    from eagle3_backend.control.alerts import Notices

APPLICATION = "eagle3-tui"


def shipped_profiles() -> Path:
    """The folder of the example profiles."""
    return shipped.profiles()


def user_settings() -> Path:
    """The folder of the user's own settings."""
    return _folder("user_config_path")


def user_profiles() -> Path:
    """The folder of the user's own profiles."""
    return _folder("user_config_path") / "profiles"


def saved_files() -> Path:
    """The folder for what the operator saves out of the panel."""
    return _folder("user_state_path") / "saved"


def _folder(kind: str) -> Path:
    # Imported here because `--help` needs no folder.
    import platformdirs

    folder: Path = getattr(platformdirs, kind)(APPLICATION)
    return folder


def profiles_by_name() -> dict[str, Path]:
    """Every profile that can be asked for by name; the user's file wins over a shipped one of the same name."""
    return {
        path.stem: path for folder in (shipped_profiles(), user_profiles()) for path in sorted(folder.glob("*.toml"))
    }


def find_profile(name: str) -> Path:
    """The file of a profile given by name or by path. Raises FindingError `profile_unknown`."""
    path = Path(os.path.expanduser(name))
    if path.suffix == ".toml" or len(path.parts) > 1:
        return path.absolute()
    known = profiles_by_name()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    raise FindingError(
        error(
            "profile_unknown",
            f"There is no profile named '{name}'.",
            path="--profile",
            expected=sorted(known),
            actual=name,
            fix=f"Did you mean '{near[0]}'?" if near else "Name a shipped profile, or give the path of a .toml file.",
        )
    )


def open_control(notices: Notices | None = None) -> Control:
    """The facade on this user's folders, started. The caller closes it. With ``notices`` a person is called."""
    from eagle3_backend.control import Control

    control = Control(
        _folder("user_config_path"), _folder("user_state_path"), _folder("user_cache_path"), notices=notices
    )
    control.start()
    return control


def own_profile(path: Path) -> Path:
    """Where edits of a profile go: shipped ones belong to the program."""
    return user_profiles() / path.name if path.parent.absolute() == shipped_profiles().absolute() else path
