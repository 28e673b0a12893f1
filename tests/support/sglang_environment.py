"""SGLang's argument parser beside vLLM: enough of an environment to ask it, since no server of it runs without a GPU.

A full install would bring a second torch; over vLLM's packages, SGLang itself and three small ones are all it needs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

PACKAGES = ("sglang==0.5.23", "orjson>=3,<4", "IPython>=8,<10", "traitlets>=5,<6")


def build(folder: Path, vllm_python: str) -> str:
    """The interpreter of the environment in ``folder``; built where it is not there yet or was built from others."""
    python, marker = folder / "bin" / "python", folder / "built-from"
    sources = "\n".join((vllm_python, *PACKAGES))
    if marker.is_file() and marker.read_text() == sources:
        return str(python)
    ask = "import site; print(site.getsitepackages()[0])"
    run(vllm_python, "-m", "venv", "--clear", str(folder))
    below, own = (run(each, "-c", ask).strip() for each in (vllm_python, str(python)))
    (Path(own) / "vllm.pth").write_text(f"{below}\n")
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *PACKAGES)
    run(str(python), "-c", "from sglang.srt.server_args import ServerArgs")
    marker.write_text(sources)
    return str(python)


def run(*command: str) -> str:
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout
