"""Runs SpecForge's command as it is, in its own environment.

On a GPU nothing of the library is changed. Its loss is a Triton kernel, so on a CPU a module `CPU_PATCHES` of the
environment is asked to put another in its place.
"""

from __future__ import annotations

import importlib
import sys

CPU_PATCHES = "specforge_on_cpu"


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        importlib.import_module(CPU_PATCHES)
    return int(importlib.import_module("specforge.cli").main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
