"""Builds an environment in which a library's trainer runs on a CPU: ``cpu_environment.py LIBRARY``.

Run by the train environment's Python (`make bench` builds that). The library comes beside it, with the torch and the
transformers that are there, and this folder with its patches is on the path. Prints the interpreter, for a profile:

    [environments.speculators]
    python = ".../.build/speculators-cpu/bin/python"
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ALONE = {
    "speculators": ("speculators==0.9.0", "hs-connectors==0.9.0"),
    # Its own pins are torch 2.11.0 and transformers 5.8.1, and sglang, which only capturing states needs.
    "specforge": ("specforge==0.2.0",),
}
PACKAGES = {
    "speculators": ("datasets==5.1.0", "loguru==0.7.3", "openai==2.54.0", "pydantic-settings==2.16.3"),
    "specforge": ("datasets==5.1.0", "pydantic>=2.12,<3", "requests>=2.32,<3"),
}
ASK = "import site; print(site.getsitepackages()[0])"


def main(library: str) -> str:
    """The interpreter; built where it is not there yet or was built from others."""
    here = Path(__file__).resolve().parent
    folder = here.parents[1] / ".build" / f"{library}-cpu"
    python, marker = folder / "bin" / "python", folder / "built-from"
    base = str(Path(sys.prefix).resolve() / "bin" / "python")
    sources = "\n".join((base, str(here), *ALONE[library], *PACKAGES[library]))
    if marker.is_file() and marker.read_text() == sources:
        return str(python)
    run(base, "-m", "venv", "--clear", str(folder))
    below, own = (run(each, "-c", ASK).strip() for each in (base, str(python)))
    (Path(own) / "beside.pth").write_text(f"{below}\n{here}\n")
    install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, *PACKAGES[library])
    run(*install, "--no-deps", *ALONE[library])
    marker.write_text(sources)
    return str(python)


def run(*command: str) -> str:
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    print(main(sys.argv[1]))
