"""speculators beside the train environment: its classes over the torch and transformers that are installed there.

A plain install brings torchvision and torchaudio, whose builds for CUDA break the import of transformers beside a CPU
torch. Neither is used by what is asked here, so speculators comes without what it requires, and the rest by name.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ALONE = ("speculators==0.9.0", "hs-connectors==0.9.0")
PACKAGES = ("datasets==5.1.0", "loguru==0.7.3", "openai==2.54.0", "pydantic-settings==2.16.3")


def build(folder: Path, train_python: str) -> str:
    """The interpreter of the environment in ``folder``; built where it is not there yet or was built from others."""
    python, marker = folder / "bin" / "python", folder / "built-from"
    sources = "\n".join((train_python, *ALONE, *PACKAGES))
    if marker.is_file() and marker.read_text() == sources:
        return str(python)
    ask = "import site; print(site.getsitepackages()[0])"
    run(train_python, "-m", "venv", "--clear", str(folder))
    below, own = (run(each, "-c", ask).strip() for each in (train_python, str(python)))
    (Path(own) / "train.pth").write_text(f"{below}\n")
    install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, *PACKAGES)
    run(*install, "--no-deps", *ALONE)
    run(str(python), "-c", "from speculators.models.eagle3 import Eagle3DraftModel")
    marker.write_text(sources)
    return str(python)


def run(*command: str) -> str:
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout
