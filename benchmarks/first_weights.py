"""The same random first weights for both trainers of row 14, each in the trainer's own terms.

In the EAGLE-3 form speculators' fc reads the aux states as they come, ours reads them divided by a power of two near
each channel's root mean square (up to a few hundred apart), and the scale is folded into fc at the end. So the same
random numbers are another function. Taken over as the same function instead, single massive channels drown all others
in our terms, and some dozens of steps cannot change that: such a start would compare how far a trainer is from where it
would never begin. In the EAGLE-3.1 form a norm of each aux state comes before fc, ours scales nothing on top of it, and
both begin with the same function.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import torch
from measuring import PATHS
from safetensors.torch import load_file, save_file

from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.reference_drafter import of_directory
from eagle3_backend.stages.starting_drafter import scale_exactly
from eagle3_backend.stages.target_head import read_target
from eagle3_backend.stages.training_data import read_data

SCRIPT = Path(__file__).parent / "peers" / "speculators_start.py"
WEIGHTS, FC, EMBEDDING = "model.safetensors", "fc.weight", "embed_tokens.weight"


def first_weights(python: str, spec: Path, target: Path, store: Path, directory: Path) -> Path:
    """The drafter directory that ours trains on from, made once: what a training by speculators began with (``spec`` is
    its folder, ``python`` its interpreter), with the numbers of fc in our terms."""
    if (directory / WEIGHTS).is_file():
        return directory
    begun = directory / "begun"
    environment = {**os.environ, "PYTHONPATH": PATHS}
    subprocess.run([python, str(SCRIPT), str(spec), str(begun)], env=environment, check=True, stdout=subprocess.DEVNULL)
    written = begun / "checkpoints"
    shutil.copyfile(written / "config.json", directory / "config.json")
    weights = load_file(written / WEIGHTS)
    weights[FC] = (weights[FC].float() / _scale(written, target, store)).to(weights[FC].dtype)
    del weights[EMBEDDING]
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})
    shutil.rmtree(begun)
    return directory


def _scale(drafter: Path, target: Path, store: Path) -> torch.Tensor:
    """The scale of each aux channel [A * H] that our training finds in these conversations."""
    head = read_target(target)
    model = Drafter(of_directory(drafter, head.config).config, head.embedding)
    with torch.no_grad():
        scale_exactly(model, read_data(store, TrainParameters()).conversations)
    return model.aux_scale
