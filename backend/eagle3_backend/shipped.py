"""What is shipped beside the code: example profiles and prompt sets."""

from __future__ import annotations

from pathlib import Path

from eagle3_backend.pipeline.prompt_names import is_named


def profiles() -> Path:
    """The folder of the example profiles: inside an installed package, at the top of a source tree."""
    package = Path(__file__).parent
    installed = package / "profiles"
    return installed if installed.is_dir() else package.parents[1] / "profiles"


def prompt_sets() -> dict[str, Path]:
    """Prompt sets by name."""
    return {path.stem: path for path in sorted((profiles() / "prompts").glob("*.jsonl"))}


def prompt_file(folder: Path, name: str) -> Path:
    """A prompt file by its path, relative to ``folder``; or a set that is shipped, by its bare name (`demo-unseen`)."""
    path = folder / Path(name).expanduser()
    return path if path.exists() else prompt_sets().get(name, path)


def whole_name(folder: Path, name: str) -> str:
    """The name of a prompt set that means the same from any folder."""
    return name if is_named(name) else str(prompt_file(folder, name))
