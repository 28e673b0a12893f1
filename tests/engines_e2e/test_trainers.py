"""Whole trainings by the two libraries on a CPU, tiny ones: from a drafter that is there, killed and resumed.

Each library runs in the environment of the benchmarks, with the smallest patches that a CPU needs. They are gigabytes,
so `make test-trainers` runs this, and nothing else does.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.trainers

REPOSITORY = Path(__file__).parents[2]
TOLERANCE = {"speculators": 1e-2, "specforge": 2e-2}
"""Of a loss whose products are in bfloat16, and with SpecForge the weights too."""


@pytest.fixture(params=sorted(TOLERANCE))
def trained(request, train_python, tmp_path):
    """The library's name, and its training as `started_training.py` tells it."""
    path = os.pathsep.join(str(REPOSITORY / room) for room in ("backend", "kernels"))

    def output(*words, **said):
        argv, environment = [train_python, *map(str, words)], {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        return subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True, check=True, **said).stdout

    library = output(REPOSITORY / "benchmarks/peers/cpu_environment.py", request.param).splitlines()[-1]
    asked = {"library": request.param, "python": library, "folder": str(tmp_path)}
    told = output(REPOSITORY / "tests/support/started_training.py", input=json.dumps(asked), timeout=900)
    return request.param, json.loads(told.splitlines()[-1])


def test_a_library_trains_on_from_a_drafter_and_a_kill_costs_it_no_more_than_its_last_steps(trained):
    library, told = trained
    killed, resumed = ({int(step): loss for step, loss in told[name].items()} for name in ("killed", "resumed"))
    print(library, told)
    assert killed[1] == pytest.approx(told["start"], rel=TOLERANCE[library])
    assert told["ignorant"] > 1.2 * told["start"]
    first, last = min(resumed), max(resumed)
    assert 1 < first <= max(killed) + 1 and last == 20
    # What it goes on with is further than what it started from.
    assert resumed[first] < min(killed[1], killed[first - 1])
    assert resumed[last] < resumed[first]
