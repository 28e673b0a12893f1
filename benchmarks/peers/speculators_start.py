"""The first weights of a training by speculators, as a drafter directory: ``speculators_start.py SPEC DIRECTORY``.

SPEC is the folder with the spec.json of that training. The library's own ``--dry-run`` makes the model of the same
seed and writes it (bfloat16) instead of training it. Run by the interpreter of `cpu_environment.py speculators`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.foreign_training import library_of, prepare


def main(spec: Path, directory: Path) -> None:
    work = replace(prepare(StageContext(spec)), folder=directory)
    library = library_of(work)
    library.write(lambda: None)
    command = [sys.executable, *library.command(), "--dry-run"]
    subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=True)
    shutil.rmtree(work.inputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
