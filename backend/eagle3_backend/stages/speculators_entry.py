"""Runs speculators' trainer as it is, in its own environment: its options are this program's.

Beside it stands one handler of its log, which prints its figures as lines of JSON. On a GPU nothing of the library is
changed; it has no path for a CPU, so there a module `CPU_PATCHES` of the environment is asked to make one.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Mapping

CPU_PATCHES = "speculators_on_cpu"
FIGURES = "figures "
"""How a line begins that holds figures."""


class Figures(logging.Handler):
    """Messages that are mappings are figures; others are printed as they are. The first rank speaks."""

    def emit(self, record: logging.LogRecord) -> None:
        if not isinstance(record.msg, Mapping):
            print(self.format(record), flush=True)
        elif "train" in record.msg or "val" in record.msg:
            print(FIGURES + json.dumps(record.msg, default=float), flush=True)


def main() -> None:
    import torch

    if not torch.cuda.is_available():
        importlib.import_module(CPU_PATCHES)
    first = os.environ.get("RANK", "0") == "0"
    # Handlers that are there already keep the library from adding its own, which cuts lines at the width of a screen.
    logging.basicConfig(level=logging.INFO, handlers=[Figures() if first else logging.NullHandler()])
    trainer = importlib.import_module("speculators.train.cli")
    config = importlib.import_module("speculators.train.config")
    trainer.main(config.TrainConfig.resolve(sys.argv[1:]))


if __name__ == "__main__":
    main()
